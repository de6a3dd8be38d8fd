"""The trials of a sweep: their points and their command lines."""
