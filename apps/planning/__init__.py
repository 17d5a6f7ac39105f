"""From demand to a plan: the topology engine, in a separate process."""
