"""Windows of a trace, played on the data plane."""
