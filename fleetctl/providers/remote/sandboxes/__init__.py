"""Defines the interface to remote sandboxes, makes each once and ends it for certain.

A provider implements the five verbs of Sandboxes (sandbox_protocol.py); runs/remote_runs.py calls
them. A name is a function of the run's alone (sandbox_names.py), so that a sandbox whose id was
lost is found again; its tags hold the store and the run. pending_creates.py has one task for each
sandbox being made or ended, which goes on without a waiting caller; an end is retried until it is
confirmed. A sandbox that left no end record becomes an observation by its Fate (without_record).
"""
