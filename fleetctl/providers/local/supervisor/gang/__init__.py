"""Attempts of several nodes on this machine: a process tree each, on addresses of the loopback."""
