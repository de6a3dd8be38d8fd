"""Starts the processes of a run, finds all of them again, and hands tasks to a worker.

`spawn_process` of `child.py` forks each process into a session of its own, with its output and a
channel on descriptor 3; on the channel it sends events to the supervisor, line by line. A command
leads one run. A Python task runs in the process of `worker.py`, which takes one task after another
while the sandbox is open, unless the task has services. `tree.py` searches /proc by session, parent
and mark, only for a run that does not end by itself or leaves processes behind.
"""
