"""A W&B sweep configuration, verbatim: its schema and its checks."""
