"""Keeps the files that an attempt wrote and its template names as `outputs`.

The supervisor of a run calls keeping.py when the work has ended and before it writes the end:
walk.py finds the files, select.py decides by their paths, pack.py writes them into one file beside
the journal, which is there whole or not at all.
"""
