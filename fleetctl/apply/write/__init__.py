"""Writes to the store, each in one transaction: commit, edit, retry."""
