"""Runs whose template asks for a function: deployed, called, followed, stopped."""
