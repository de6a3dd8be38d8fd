"""Runs one Python task in a process that a supervisor has prepared, and reports by events.

`Sandbox.run` in `task.py` puts the parameters and helpers into the namespace and executes the
program until it ends, fails or calls SUBMIT, whose value `plain.py` turns into JSON. TERM unwinds
the program, so that its `finally` blocks run (`term.py`). `serving.py` takes task after task and
restores directory, environment and signals between two. Commands use `parameters.py` and
`program.py`. No module here writes a journal or decides whether a task has failed.
"""
