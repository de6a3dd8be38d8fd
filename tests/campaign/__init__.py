"""`make campaign`: trials in numbers that take hours, played in pieces, also over several days.

`python -m tests.campaign PART ...` continues where the parts last stopped, side by side, with their
progress in played/PART.json, a share for each commit of the product. parts.py is the table of
parts; the track record (tests/record) runs them and has a row for each. `make test` plays a piece
of each part.
"""
