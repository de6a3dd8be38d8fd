"""Holds the shared parts of the engine: state, inbox, messages, queue, settings."""
