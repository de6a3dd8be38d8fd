"""Strict YAML: read with limits, errors in plain words, written back."""
