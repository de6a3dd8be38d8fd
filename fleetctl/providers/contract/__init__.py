"""Defines the interface of a provider, and describes its package and its promises as data.

The engine calls the verbs of `base.py`: start, observe, stop, owned and logs for runs, a few for
assets. Only `Refused` and `Unavailable` mean that no work was started; after any other error the
engine repeats the call under the same run name, so a start must begin the work at most once.
`terms.py` holds the limits that the engine plans with. `plugin.py` names classes as text, so that a
list of providers imports none. tests/contracts holds each provider to this.
"""
