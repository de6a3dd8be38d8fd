"""The code that tasks work on: which files of a directory are taken, and how git is called; for all
providers.

A provider decides where the code is put. No module here knows of sandboxes.
"""
