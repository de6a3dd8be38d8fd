"""Processes observations of runs and of providers into records."""
