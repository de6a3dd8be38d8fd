"""Repositories that are kept applied: fetched, read in a process of their own, stored."""
