"""Checks of what a file says: each finds specs that their models accept and that can never work, or
that are likely meant otherwise. Listed in rules.py, which says the kinds that a check is about.
"""
