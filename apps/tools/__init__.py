"""Tools beside the controller: device self-test, lab certificates, backups, support bundles."""
