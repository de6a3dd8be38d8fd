"""Tests of the emulators themselves, by the real SDKs and other clients; nothing of fleetctl is in
them. They run when the emulators or the pinned packages have changed; see ../stamp.py.
"""
