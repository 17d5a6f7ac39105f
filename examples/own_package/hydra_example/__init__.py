"""What a package of your own can add to HydRA, each in a file: see pyproject.toml for the names."""
