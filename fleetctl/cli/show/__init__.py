"""Screens of what is stored: get, describe, summary, events."""
