"""What is on this machine of work that is over: the listing for the limits of `kind: Settings`, and
the hands that take away what a decision names.
"""
