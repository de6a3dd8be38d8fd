"""Providers: where runs run. `base.py` defines a provider; siblings do not know each other."""
