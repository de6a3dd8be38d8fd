"""Sends a task's request to a server: holds the highest cost, awaits a slot, counts the answer."""
