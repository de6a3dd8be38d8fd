"""Isolates runs: builds namespaces and mounts, shows volumes, drops privileges.

starting.py calls spaces.py once a supervisor, session.py once a session: it enters the namespaces,
mounts.py builds their file tree (the host's, read-only, with our directories at their paths), and
each process forked later inherits both. Privileges go last and for good, with Landlock also
writing elsewhere; where runs mount directories of their own, run/child.py drops them in each run.
If a step fails, work goes on in tier `process`, with symlinks for volumes, and the reason is
reported; only a required tier `namespaces` is an error. The tree creates no file on the host.
"""
