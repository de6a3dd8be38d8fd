"""Sandboxes for runs at Modal: made, looked up, entered, ended."""
