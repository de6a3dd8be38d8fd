"""Decides the next step of every object, from its spec, its history and the time.

The engine builds a DesiredObject (schedule/desired.py) and calls reconcile_object in reconcile.py:
its RULES are tried in order, and the first that applies makes the plan. The engine checks the plan
(lint_plan), records it and carries it out; status.py turns it into the status that users see.
A kind decides through its KindController (kinds/); all other rules are shared by every kind.
Pure: no I/O, no clock, no asyncio, no logging; an import contract in pyproject.toml holds that.
"""
