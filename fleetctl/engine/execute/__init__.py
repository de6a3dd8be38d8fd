"""Calls providers: for the actions that the store requests, and for orphans to end."""
