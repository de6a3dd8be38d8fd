"""Isolates runs: builds namespaces and mounts, shows volumes, drops privileges."""
