"""Carries a run from its order to its end record, in one thread that never waits.

serve.py has BeginLog write the names of all ordered runs durably, then calls RunSupervisor
(supervise.py). A run that has a journal began before; for any other one RunSupervisor forks
child.py into the sandbox, or sends the order to the worker there. hearing.py reads output and
events, looking.py finds stalls and overuse once a second, gang.py holds nodes until all are ready.
When the sandbox's leader exits, the end waits until its other processes are gone (procs.py). Then
concluding.py keeps outputs and composes the end record, and cleaning.py takes the directory back.
"""
