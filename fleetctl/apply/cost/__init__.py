"""Estimates what an apply would do, where its work would run and how much it would cost.

Offline: reads the store read-only and the packaged prices, sends no request to a provider. Called
by the CLI.
"""
