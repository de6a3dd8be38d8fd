"""Decides when to back up the state."""
