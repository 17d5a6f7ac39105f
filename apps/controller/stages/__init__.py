"""Large changes, a stage at a time; other jobs come in between."""
