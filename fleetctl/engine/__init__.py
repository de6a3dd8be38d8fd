"""Moves the stored objects towards their specs, tick after tick, at the providers.

engine.py wires the parts and sleeps until a message, a new spec or a due time; tick.py takes the
messages in (observe/), runs a pass for each due object (decide/), and makes both durable in one
transaction. Only then does execute/ call providers, and each reply is a message for a later tick.
The decisions are pure functions of controllers/. A kind with behavior of its own is an EnginePart
(shared/part.py), whose hooks are called in the order of PART_ORDER. An event only names the object
to look at, and all state in memory can be read back, so a restart is a tick like any other.
"""
