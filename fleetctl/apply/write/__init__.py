"""Writes to the store, each in one transaction: commit, edit, retry, the changes of an apply."""
