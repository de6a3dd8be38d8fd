"""Leads an attempt that has services: they are ready before the work begins, and end after it.

`lead_services` of `crew.py` runs in the forked process that leads the run. A service that ends
before it was ready fails the run; while the work runs, its `onExit` decides: fail, restart or
ignore. A TERM ends the work first and the services after it, and all services end with their
leader. `process.py` holds one service with its probe, and the records that the supervisor keeps of
its log and states.
"""
