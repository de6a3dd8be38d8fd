"""The Python client: manifests as objects, and a fleet to apply them to.

Reading needs no controller; what changes something starts one, as the command line does. How to use
it: docs/how-to/use-python.md.
"""
