"""Holds the state and contracts that all parts of the engine share.

engine_state.py has the objects in memory, each field with its writers; all but the store can be
lost and is read back. Calls and observers put typed messages (messages.py) into the inbox, which
wakes the loop; only a tick takes them out. due_queue.py holds the keys to look at with their due
times, and which objects wait for which. part.py defines EnginePart: by its hooks the loop, ticks
and passes call every part without knowing its kind. boundary.py guards calls into providers, so
that a hang or a bug becomes a NoAnswer with a sentence for users.
"""
