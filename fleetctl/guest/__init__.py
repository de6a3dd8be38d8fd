"""The code that runs inside a sandbox: standard library only, Python 3.9 and later, shipped as one
file.

`ship/assemble.py` makes that file. Its code imports no other part of fleetctl.
"""
