"""Writes changes of the desired state to the store, each in one transaction.

store_changes.py stores a proposal of propose.py: rows by expected version, events, and results that
pruned objects leave to others. A policy's denial, or an object that changed in between, fails the
whole. Applies, Schedules (scheduled.py) and Sources end there; an edit (commit.py) becomes a
manifest that is applied. Deletion and suspension are in commit.py, `retry` in requeue.py.
No run is started or stopped here: the engine's next pass finds the new state.
"""
