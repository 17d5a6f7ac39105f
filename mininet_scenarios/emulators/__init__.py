"""Processes that emulate devices: each speaks the vendor's protocol and fails on request."""
