"""Runs work in functions of Modal: deploys each content once, calls it for a run, follows the call.

A start has two phases (function_runs.py): deployments.py makes sure that the app exists, after it
recorded its user on disk; then a call is spawned, and call_records.py writes down its id.
A call has no name of ours: latches.py lets only one call of a run begin, so a lost or repeated
spawn runs it once. function_calls.py implements the Sandboxes protocol of providers/remote, whose
RemoteRuns mirrors the returned frames; plain_pickle.py reads these as data and executes no code.
The code inside a function is in container/.
"""
