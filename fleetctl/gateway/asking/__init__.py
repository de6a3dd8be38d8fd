"""Asking a server for a task: what it may cost is set aside, a slot awaited, the answer counted."""
