"""A run, from its order to its end record."""
