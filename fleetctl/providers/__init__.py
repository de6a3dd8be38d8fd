"""Providers: where runs run. `base.py` says what one is; siblings do not know each other."""
