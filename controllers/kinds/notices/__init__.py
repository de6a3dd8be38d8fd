"""Chooses the status changes that send a notice, and writes its message."""
