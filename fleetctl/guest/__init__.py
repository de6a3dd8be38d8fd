"""What runs inside a sandbox: standard library only, Python 3.9 and later, shipped as one file.

`assemble.guest_source` makes that file. Nothing here knows the rest of fleetctl.
"""
