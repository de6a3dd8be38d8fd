"""Sessions of interpreters at Daytona."""
