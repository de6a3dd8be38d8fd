"""Trials whose programs talk to W&B, and trials that W&B hands out."""
