"""Records metrics that a program prints or writes without knowing fleetctl.

The template's `metrics` block chooses the source. For each run with one, the supervisor makes a
`Followed` (followed.py): it passes output on to it, and about once a second has it read new values,
by a regular expression, from JSON lines (files.py) or from TensorBoard's events (events.py). They
go to the journal, thinned out by thinning.py; cpulimit.py ends an expression that takes too long.
Only content from after the program's start counts; invalid values are left out and reported once.
Ships into sandboxes with the guest; standard library alone.
"""
