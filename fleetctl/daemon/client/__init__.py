"""Finds, starts and waits for the controller process, for commands."""
