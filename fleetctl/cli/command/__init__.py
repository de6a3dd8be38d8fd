"""Defines the command line itself: verbs, flags, their values, and reports of crashes.

VERBS in verbs.py is the table of all verbs: main.py dispatches by it, and `--help`, completion and
`api-resources` are made from it. Verbs of other tools have a hint there. flags.py has the parser
class of every verb, the flags that several share, and the readers of times, indexes and money.
crash.py reports an error that no verb foresaw: one line for the user, and the traceback in a
private file, without local values, which may hold secrets.
"""
