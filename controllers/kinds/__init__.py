"""Decides for each kind: the units it wants, or the one step that is due.

BatchJob, Sweep and TrainingRun are KindControllers, one file each and one row in registry.py:
they choose units, templates and the verdict on the whole; reconcile.py does the rest.
Kinds without runs have a function of the present state and the time instead: assets.py, and the
*_decision.py of backups, retention, schedules and sources, whose callers carry out the step.
notices.py finds the events in a change of status. Pure; the kinds do not import each other.
"""
