"""Decides which runs a pass starts, stops and waits for."""
