"""The controller at work: what it knows, decides and keeps true; one conductor thread acts."""
