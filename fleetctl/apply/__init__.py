"""Turns a manifest into a committed change: draft, compare, predict, ask for consent, store."""
