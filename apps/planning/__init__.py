"""From demand to a plan: the topology engine, in a process of its own."""
