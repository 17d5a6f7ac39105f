"""Routers of the REST API, each named after the resource that it serves."""
