"""Policies: expressions of CEL that objects must meet before they are stored.

judge.py judges each change of a proposal; propose.py calls it, and stores no denied change.
"""
