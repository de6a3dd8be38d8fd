"""Manages the controller and its store from outside: its start and end, checks, backups.

`up` runs the controller in this process (daemon/serve.py) or in the background; `down` sends it a
request, and `down --force` signals only the process that provably holds the lock of this state
directory. backup and restore work on the files of the store; restore fails while a controller runs.
gc sends a request, but a dry run computes the same removals here. doctor.py and machine.py check
and change no state. bundle.py removes known secrets from all that it packs for a bug report.
"""
