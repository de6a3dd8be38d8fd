"""Waits of the supervisor: for descriptors, times and clients."""
