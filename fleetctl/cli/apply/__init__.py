"""Turns files into an applied change: apply, watch, diff, validate, and the plan before it."""
