"""The client for asyncio, the source of the generated ``synchronous``."""
