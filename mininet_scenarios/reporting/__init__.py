"""What people see of a run: progress, tables, plots."""
