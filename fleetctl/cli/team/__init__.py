"""Verbs of a team that shares one server: serve, token, audit, login and config."""
