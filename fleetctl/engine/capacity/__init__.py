"""Tracks the capacity of each provider, and its prices."""
