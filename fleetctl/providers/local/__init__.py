"""Provider `local`: runs as process trees of this machine, volumes as directories, no account.

`local_provider.py` is the face, `supervisors.py` is the client of the supervisors, and
`supervisor/` runs beside the controller and outlives it. Import `run_log_reader.py` alone to read
output; it needs no other module of this package.
"""
