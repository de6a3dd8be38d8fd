"""Judges changes by policies: expressions of CEL that objects must meet before they are stored.

expressions.py parses a rule and bounds its cost; typecheck.py checks its fields by the schemas.
judge.py judges each change of a proposal, for propose.py; the values come from evaluation.py, which
has evaluator.py compute them in a process with limits that the kernel enforces.
A rule that cannot be evaluated counts as broken. write/store_changes.py stores no denied change;
report.py makes one refusal of all findings. No file here writes to the store.
"""
