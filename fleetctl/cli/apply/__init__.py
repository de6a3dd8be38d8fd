"""Turns files into an applied change: apply, run, watch, diff, validate, render and plans.

request.py reads the documents, with `--set` and `--values` (overrides.py), sends them, and where
the controller refuses for losses, asks the user and sends them again with `yes`. Parsing, checks
and the decision belong to the controller. `diff`, `validate`, `plan` and a client's dry run compute
the same decision in this process (fleetctl/apply/local_proposal.py) and store no change.
run.py first makes a manifest from a command (runs/), and follows its output after the apply.
"""
