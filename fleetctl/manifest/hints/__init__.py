"""Guesses at the meant value or field, and the names of fields in other tools."""
