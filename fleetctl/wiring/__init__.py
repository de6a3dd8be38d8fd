"""Connects concrete stores and providers: a table of providers, and the accounts of one process."""
