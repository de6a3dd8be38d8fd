"""Leads one run in its sandbox from its preparations to its end record.

`Attempt` in `attempt.py` decides everything and never waits: the supervisor's loop calls it for
each event. It runs the setup commands of a fresh sandbox, writes the task's files, and starts the
work with its services. Once the work and the processes that it left have ended, it takes the last
output, keeps the `outputs` (`keeping.py`), syncs the volumes (`sync.py`) and then writes the end
record to the journal: no success is on record before its data are durable.
"""
