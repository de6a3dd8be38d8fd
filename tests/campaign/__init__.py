"""`make campaign`: trials in numbers that take hours, played in pieces, also over several days.

`python -m tests.campaign PART` continues where the part last stopped, with its progress in
.campaign/PART.json, until the product's code changes. parts.py is the table of parts; the track
record (tests/record) runs them and has a row for each. `make test` plays a piece of each part.
"""
