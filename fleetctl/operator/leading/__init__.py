"""Chooses the leader of several operators by a Lease."""
