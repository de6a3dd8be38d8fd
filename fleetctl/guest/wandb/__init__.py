"""Runs programs that know wandb alone: gives them parameters, and records what they log."""
