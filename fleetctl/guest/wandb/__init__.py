"""Runs programs that know wandb alone: gives them parameters, and records what they log.

Before the program starts, `Trial` in `trial.py` writes the file from which `wandb.init` takes its
parameters, and sets wandb offline where neither the order names a run at W&B nor the program has an
account. While it runs, new records of `run-<id>.wandb` go through `file.py` into the journal; at
the end wandb's summary is the result of a program that handed in none. A program that reported
nothing and never read its parameters fails. No module here connects to W&B.
"""
