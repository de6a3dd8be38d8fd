"""Parses words on a command line that name kinds, objects, tasks, volumes and accounts."""
