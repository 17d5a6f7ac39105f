"""Output of a run for people: progress, tables, plots."""
