"""Policies: expressions of CEL that objects must meet before they are stored.

judge.py judges each change of a proposal, for propose.py; store_changes.py stores no denied change.
"""
