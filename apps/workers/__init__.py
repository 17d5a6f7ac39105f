"""Workers: processes that hold the switches' OpenFlow connections for a controller; and the
link.
"""
