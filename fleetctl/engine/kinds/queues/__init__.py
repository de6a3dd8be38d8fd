"""Manages queues in the engine: their usage, the waiting objects, and what each object's pass may
start.
"""
