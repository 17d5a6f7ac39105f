"""The agent on a server, which ``hydra agent`` runs. It imports neither Ryu nor numpy."""
