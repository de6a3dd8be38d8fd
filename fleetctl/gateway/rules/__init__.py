"""Decisions of the gateway without I/O: the time comes as an argument."""
