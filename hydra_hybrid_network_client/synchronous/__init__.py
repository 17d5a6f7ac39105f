"""The synchronous client, generated from ``asynchronous`` by scripts/client_package.py."""
