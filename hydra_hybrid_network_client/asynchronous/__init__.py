"""The client for asyncio, which ``synchronous`` is generated from."""
