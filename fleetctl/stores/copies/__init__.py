"""Accesses backups: files and directories of this machine, and targets that fsspec reaches."""
