"""The guest of sandboxes whose image has no Python: the same verbs and frames, in POSIX shell.

`assemble.posix_source` ships the shell parts as one file; order.py writes the orders that it reads.
"""
