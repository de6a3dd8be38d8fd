"""Decides for the gateway, without I/O: which server, which retry, which cost.

The callers in asking/, batching/ and data/ read the clock, pass the time in, and carry out the
result. servers.py chooses the server of the next request and learns from answers how many each
carries at once, and when a failing one rests. usage.py computes the worst case before a request and
the tokens after it: never fewer than a server can have counted. failures.py recognizes replies that
are no answer, decides if a call is tried again, and defines the refusal that a task receives.
"""
