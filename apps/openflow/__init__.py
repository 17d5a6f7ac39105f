"""Switches on OpenFlow 1.3: Ryu, connections, requests and replies (bytes: ``drivers/codecs``)."""
