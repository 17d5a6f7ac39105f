"""The controller's memory, in step with the journal: state, reservations, log, and their writer."""
