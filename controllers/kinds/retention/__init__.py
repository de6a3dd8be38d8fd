"""Decides which finished objects and records to delete: limits, and the decision."""
