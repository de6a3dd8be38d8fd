"""Rows that are asked together, through a model server's own batch API."""
