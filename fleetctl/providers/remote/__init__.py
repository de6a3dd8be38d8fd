"""What every provider with remote sandboxes needs on this machine: a mirror of each run's journal
and log, one follower a run, and the order in which things may be said.

Used by the providers that run the guest in somebody else's sandboxes; it knows none of them.
"""
