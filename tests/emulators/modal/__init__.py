"""A loopback server that the unmodified `modal` SDK talks to; sandboxes are processes in boxes.

`running.ModalEmulator` starts it for tests, `python -m tests.emulators.modal` by hand. What the
real server is guessed to do is said where it is done.
"""
