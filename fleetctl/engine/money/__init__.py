"""Holds work within its budgets: reserves before a start, charges at an end.

budgets.py counts each Budget in a tick, from the entries of ledger.py and the worst case of live
runs; a pass receives the result as its allowance, and controllers/ decides if a start fits. An
object that lacks money waits here until its budget has some. ledger.py writes a charge in the
transaction that writes the run's end, so that a crash charges no run twice. warm_functions.py
charges containers that a Function keeps warm, with the time of the last charge in its status. A
Budget's figures are counted again in each tick, so they cannot drift; a run of unknown price adds
its seconds, and is never counted as free.
"""
