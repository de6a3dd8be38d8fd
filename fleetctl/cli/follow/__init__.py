"""Follows work as it happens: wait, progress, logs.

All verbs read the store and the logs in this process; while they wait, WaitSupervisor
(wait_supervisor.py) sees to it that a controller runs. wait.py ends when its condition is met or
can no longer be; progress.py, for `apply --wait`, when all work has ended or no event that is to
come can help it. logs_stream.py prints the output of a run, logs_follow.py the output of all runs
of an object, later ones too. Ctrl-C ends only the watching: the work goes on.
"""
