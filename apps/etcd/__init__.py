"""etcd, a store shared by several controllers: its API, and the election of the leader."""
