"""The guest of remote sandboxes: begins a run at most once, supervises it, and streams its frames.

`assemble.remote_source` ships it as one file; main.py lists its verbs. A run is begun by `attach`,
which may be lost at any moment: the work belongs to a supervisor that is detached from it.
"""
