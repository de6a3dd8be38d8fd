"""Calls to services: their rate, and throttling."""
