"""OpenFlow 1.3 as bytes: messages, flow rules, meters and statistics; no sockets and no Ryu."""
