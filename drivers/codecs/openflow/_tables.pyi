"""Tables of rules, to be recognised in flow statistics (native/tables.h)."""

class Table:
    def __init__(self, flow_mods: bytes, cookie_mask: int) -> None:
        """Raises ValueError for anything else than flow-mods."""
    def __len__(self) -> int: ...
    def held_with(self, own: Table, body: bytes) -> bool: ...
