"""Decides which runs a pass starts, stops and waits for. Pure.

desired.py describes the object for the pass. plan_end (end.py) comes first: a verdict, a deadline,
a refusal or a budget ends the object. Otherwise plan_advance (advance.py) stops unwanted runs, and
starts.py starts due units in order, each in an idle sandbox or a new one; useless sandboxes are
closed. For a new one affordable.py takes the best provider with capacity (counted by capacity.py)
that the queue and the budgets allow. A unit that cannot start keeps all behind it from starting.
"""
