"""Isolation of a run: namespaces, mounts, volumes, privileges."""
