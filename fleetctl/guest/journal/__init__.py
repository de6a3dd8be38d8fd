"""Records a run where it works: its journal, its output, its result and its end.

Only the run's supervisor writes here, never the task. record.py creates the journal file, which
also is the latch that lets a run begin once; each event is one line and one write, so that a reader
sees whole lines. logfile.py keeps the first and the newest output, at offsets that never change.
masking.py removes values of secrets before any write. At the end results.py judges the result that
the task left, ending.py the reason and whether infrastructure was the cause, and both are written
as the end: a journal without an end is of a run that lives or was lost.
"""
