"""Runs on this machine: their supervisors, the line to them, and what they need to start."""
