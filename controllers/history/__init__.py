"""Keeps the history of the units of an object, incrementally."""
