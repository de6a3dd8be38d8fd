"""Copies the state on the schedule of the settings."""
