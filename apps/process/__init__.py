"""The process itself: configuration file, logs, metrics, traces, memory, systemd."""
