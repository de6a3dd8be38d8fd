"""The guest of sandboxes whose image has no Python: the same verbs and frames, in POSIX shell.

`assemble.posix_source` joins the shell parts to one file. order.py, which runs at the provider,
writes an order as text that the shell sources; values of secrets are never in it. In the sandbox
main.sh reads the verb: `attach` takes the run's latch, starts supervise.sh in a session of its own,
and follow.sh streams frames from any offset, so that a lost attach loses no work. `stop` and
`leave` end a run through end.sh, with tree.sh to find its processes; load.sh samples what they use.
State directory, journal and output have the form that guest/remote writes, so a provider reads both
alike.
"""
