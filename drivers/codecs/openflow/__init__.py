"""OpenFlow 1.3 as bytes: messages, rules, rule tables, meters, statistics; no sockets, no Ryu."""
