"""The controller at work: records, decisions and upkeep; a single conductor thread acts."""
