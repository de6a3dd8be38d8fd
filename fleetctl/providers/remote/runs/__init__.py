"""Begins, follows and mirrors the runs of a provider with remote sandboxes.

A provider calls remote_runs.py, which makes a TrackedRun for each run. Its Follower opens a stream
with the order, appends the guest's frames to the mirror (run_mirror.py, segments.py), and opens the
next one at the mirrored offsets when it drops. Observations of a healthy run are read from the
mirror, without a call. An end is reported only after this: end and output are in the mirror, the
mirror is on the disk, the sandbox is confirmed over or stays open for another run.
Values of secrets travel in the environment of the guest's `attach`, never in the order.
"""
