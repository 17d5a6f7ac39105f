"""The stage: a testbed with a controller on it, and what scenarios do there."""
