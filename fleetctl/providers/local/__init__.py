"""Provider `local`: runs as process trees of this machine, volumes as directories, no account.

`provider.py` is the face, `supervisors.py` talks to the supervisors, and `supervisor/` is what runs
beside the controller and outlives it. Import `logs.py` alone to read output; it needs nothing else
of this package.
"""
