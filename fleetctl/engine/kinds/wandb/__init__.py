"""Sweeps that are W&B's: the engine is their agent."""
