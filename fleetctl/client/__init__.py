"""The Python client: manifests as objects, and a fleet to apply them to.

Reads need no controller; changes start one, as the command line does. How to use it:
docs/how-to/use-python.md.
"""
