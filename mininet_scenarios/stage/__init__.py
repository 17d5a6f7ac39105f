"""The stage: a testbed with a controller, and actions of scenarios."""
