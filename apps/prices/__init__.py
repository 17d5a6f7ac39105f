"""What networks cost, from price files that can be edited: ``hydra price``."""
