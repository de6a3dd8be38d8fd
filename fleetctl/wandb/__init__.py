"""Calls W&B's service: the requests that a sweep there needs, without the `wandb` package."""
