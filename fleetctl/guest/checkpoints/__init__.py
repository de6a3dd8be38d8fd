"""Checkpoints of a training beside a run: recognised, resumed from, set aside, kept few."""
