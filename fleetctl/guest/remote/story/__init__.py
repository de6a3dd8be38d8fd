"""Streams a run's journal and log as frames on stdout, from any offset."""
