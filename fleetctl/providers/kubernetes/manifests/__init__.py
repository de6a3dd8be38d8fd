"""What is made in a cluster, as plain dicts. Pure."""
