"""Sessions of interpreters on this machine."""
