"""Rows that are sent together, through a model server's own batch API."""
