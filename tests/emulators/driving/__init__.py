"""Helps tests that work with an emulator: clients of it, waits for a state, gates of tasks.

Used by the emulators' own suite and by the tests of fleetctl.
"""
