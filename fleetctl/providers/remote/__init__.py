"""The shared part of all providers with remote sandboxes: a mirror of each run's journal and log on
this machine, one follower a run, and the order in which ends are reported.

Used by the providers that run the guest in sandboxes elsewhere; it knows no provider.
"""
