"""Code that tasks work on: what of a directory is taken, and how git is asked; for all providers.

A provider decides where it lands. Nothing here knows of sandboxes.
"""
