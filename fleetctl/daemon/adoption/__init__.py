"""Turns sandboxes without a record, or unknown to a restored backup, into runs of objects."""
