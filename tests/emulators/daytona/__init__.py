"""An emulator of Daytona: one loopback server that the unmodified SDK drives.

What a caller can see is what the published API specification and the pinned client's models say;
what happens behind it is real: processes in a box per sandbox, files, mounted volumes, images that
are built. `server.py` puts the parts together, `running.py` starts it in a process of its own, and
`faults.py` is how a test makes it misbehave.
"""
