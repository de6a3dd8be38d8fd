"""Calls of providers: what the store asks for, and what nobody asks for any more."""
