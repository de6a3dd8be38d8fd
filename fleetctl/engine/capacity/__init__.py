"""Decides which providers may take a run, how many, and at which price.

price_book.py reads the Provider objects, opens a backend for each account, and makes the offers of
a template: price and unmet requirements. admission.py counts sandboxes and spend again from the
live runs at the beginning of each tick, so that no count can drift. Passes receive both as inputs;
the pure functions of controllers/planning/placement.py choose. An object that found a provider full
waits here, and is looked at again once a slot is free. The executor checks `exceeded` before it
makes a sandbox, as a limit may be lowered at any time. Calls no provider.
"""
