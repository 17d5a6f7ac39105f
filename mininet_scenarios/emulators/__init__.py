"""Processes that emulate devices: they speak the vendor's protocol and can be told to fail."""
