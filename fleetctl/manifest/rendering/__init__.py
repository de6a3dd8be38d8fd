"""Turns documents into whole manifests: variables put in, overlays laid over their bases.

Called by loader.py before anything is checked against a model, and by `render`, which shows the
manifests.
"""
