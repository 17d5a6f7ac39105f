"""Plans and replays from files, without a controller: ``hydra plan --fabric``, ``hydra replay``."""
