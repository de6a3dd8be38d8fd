"""The driver: what serves an interpreter from inside a sandbox; `assemble.driver_source` ships it.

Standard library only, Python 3.9 and later. Knows the guest's helpers and nothing else of fleetctl.
"""
