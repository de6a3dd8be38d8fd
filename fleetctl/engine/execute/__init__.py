"""Calls providers for intents that a tick has stored, and ends sandboxes without a record.

After each commit tick.py calls executor.py for the objects it touched: a STARTING run without a
call is started, a STOPPING one is stopped. start_specs.py completes the request and secrets.py adds
values, which are never stored. Each call is a task with a rate limiter of rate_limit.py, which
stores only the times of creates; its outcome goes to the inbox as a message, and no call here
writes a run's record. asset_calls.py does the same for volumes and functions. Beside the ticks,
orphan_sweep.py ends sandboxes without a record, and retention.py deletes finished work.
"""
