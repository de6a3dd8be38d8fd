"""The bill before it is spent: what an apply would do, where it would run, what it would cost.

Offline: reads the store read-only and the packaged prices, asks no provider. Called by the CLI.
"""
