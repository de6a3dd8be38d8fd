"""Sandboxes that nobody remembers, or that a backup does not know, become runs of objects."""
