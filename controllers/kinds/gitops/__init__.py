"""Decides a Source's next step: the commit to look up, read, and apply."""
