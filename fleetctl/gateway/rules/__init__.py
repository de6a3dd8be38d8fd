"""What the gateway decides without I/O: the time comes as an argument."""
