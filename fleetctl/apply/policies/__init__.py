"""Policies: expressions of CEL that objects must meet before they are stored.

judge.py says what each change of a proposal comes to; propose.py asks it, and writes nothing that
is denied.
"""
