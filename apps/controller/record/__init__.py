"""The controller's records, in step with the journal: state, reservations, log, and the writer."""
