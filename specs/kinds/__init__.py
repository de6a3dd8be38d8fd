"""One file a kind, and the registry that has a line of each."""
