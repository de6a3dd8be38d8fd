"""Stores specs, runs and events: one process writes, any number of processes read.

base.py defines the Store that the engine writes to, sqlite/ implements it, and read/ serves
commands without a controller. state_dir.py locks the directory for the one writer, and refuses
disks whose locks cannot be trusted. Writes happen in a transaction, and all are durable when it
ends. The SQL is in sql/ (queries.py). backup.py copies the databases as of a moment; copies.py
writes that file to its target. access.py, waits.py and interpreters.py have database files of
their own, which other processes write. A store never calls a provider and takes no decisions.
"""
