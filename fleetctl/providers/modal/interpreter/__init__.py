"""Sessions of interpreters at Modal."""
