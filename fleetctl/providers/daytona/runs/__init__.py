"""Creates, finds, enters and ends the sandboxes of runs at Daytona.

A start has two phases. `daytona_creator.py` makes the run's sandbox, named after the run, so that a
repeated request finds the first one; once its id is stored, `begin_run` in `daytona_streams.py`
hands the order to the guest, whose latch allows one beginning. `daytona_sandboxes.py` reads states
by `get`, never from a list, which lags. Each deletion goes through `daytona_endings.py`, which also
explains a sandbox that left no end record; a run's outcome comes only from its journal.
"""
