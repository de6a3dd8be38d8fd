"""Decides when a failed unit runs again, and keeps the units that wait."""
