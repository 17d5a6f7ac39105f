"""Workers: processes with the switches' OpenFlow connections, linked to a controller."""
