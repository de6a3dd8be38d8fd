"""Keeps the records of each object with unfinished work, in memory and in the store.

A Track (track.py) is one object in the engine's memory. Every field may be dropped: load.py parses
the spec again and replays the stored runs through the kind's controller. Annotations hold facts
that outlast a pass and that an apply leaves unchanged (annotations.py, by_hand.py, kept_by.py).
Code and files that a manifest names are read when it is proposed (manifest_sources.py,
task_inputs.py) and stored with the object, so that its runs get just that state. result_cache.py
finds results of equal work by content. Called by the engine and by apply; it starts no run.
"""
