"""The objects that are made in a cluster, as plain dicts. Pure."""
