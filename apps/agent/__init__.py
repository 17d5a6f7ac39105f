"""The agent on a server, run by ``hydra agent``. Imports neither Ryu nor numpy."""
