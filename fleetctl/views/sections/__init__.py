"""Texts on one kind: cells of its list, and its lines in `describe`. Pure."""
