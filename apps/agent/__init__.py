"""The agent on a server: what ``hydra agent`` runs. It imports neither Ryu nor numpy."""
