"""Resumes a run from a checkpoint, and makes its new checkpoints durable, reported and few.

Before the program starts, begin.py restores a checkpoint from the mirror where the volume has none;
prepare.py chooses the one to resume from, and moves aside those that would mislead the program,
each with a report. While it runs, the supervisor calls watch.py once a second: a new checkpoint is
complete by the table in formats.py, is made durable, and only then is reported to the journal and
copied by mirror.py, and older ones are removed as keeping.py decides. The table recognizes a
checkpoint by the names, sizes and markers that disk.py shows, never by the data.
"""
