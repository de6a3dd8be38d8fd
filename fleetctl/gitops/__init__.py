"""Applies repositories continuously: fetched, read in a process of their own, stored."""
