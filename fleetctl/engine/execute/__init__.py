"""Calls that are made for what no live run asks for any more."""
