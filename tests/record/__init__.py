"""`make test-all`: all that there is to run, part by part, and the page that says how it went.

`python -m tests.record [PART ...]` runs the parts that did not pass at this commit, and writes
docs/reference/track-record.md after each. parts.py is the table of parts, results.py what is kept
of a run, page.py the page.
"""
