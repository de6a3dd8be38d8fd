"""Keeps the history of an object's units in memory, so that a pass need not read all of its runs.

outcome.py turns an observation into the run's next record, which the engine stores. When a run has
ended, History (history.py) has attempts.py settle its unit as finished, given up or due again, by
the rules of retry_limits.py; the result is in its facts (facts.py). After a restart, replay_runs
reads the stored runs through the same attempts.py, so a restart is no second code path.
Controllers read a history; the engine alone changes it. Each ended run costs O(log).
"""
