"""The driver: serves an interpreter from inside a sandbox; `assemble.driver_source` ships it.

Standard library only, Python 3.9 and later. Imports the guest's helpers and no more of fleetctl.
"""
