"""etcd, where several controllers share a store: its API, and which of them leads."""
