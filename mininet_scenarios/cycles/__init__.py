"""Orders of a change's substeps, injected into the controller by experiments."""
