"""Records metrics that a program prints or writes without knowing fleetctl.

Ships into sandboxes with the guest; standard library alone.
"""
