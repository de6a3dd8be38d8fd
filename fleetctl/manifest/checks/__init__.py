"""Checks of a manifest: each finds specs that their models accept and that can never work, or
that are likely meant otherwise. Listed in rules.py with the kinds that each check is for.
"""
