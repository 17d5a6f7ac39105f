"""The stage: a testbed with a controller on it, and actions of scenarios there."""
