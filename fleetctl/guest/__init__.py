"""What runs inside a sandbox: standard library only, Python 3.9 and later, shipped as one file.

`ship/assemble.py` makes that file. Nothing here knows the rest of fleetctl.
"""
