"""Lists the data of finished work on this machine, for the limits of `kind: Settings`, and deletes
the items of a decision.
"""
