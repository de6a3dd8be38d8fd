"""Notices: written with what they tell of, and delivered beside the ticks."""
