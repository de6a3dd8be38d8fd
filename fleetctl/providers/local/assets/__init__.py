"""Environments, Pythons, sources and volumes on this machine."""
