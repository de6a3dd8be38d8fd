"""Estimates how long work lasts, where it would run and how much it would cost.

Offline: reads the store read-only and the packaged prices, sends no request to a provider. Called
by apply/plan.
"""
