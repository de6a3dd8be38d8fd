"""Queues in the engine: what of them is used, who waits, and what each object's pass may start."""
