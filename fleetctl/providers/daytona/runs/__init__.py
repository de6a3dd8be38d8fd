"""Sandboxes for runs at Daytona: made, looked up, entered, ended."""
