"""Strict scalars and quantities that specs are made of. Pure."""
