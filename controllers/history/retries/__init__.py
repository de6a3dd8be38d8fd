"""When a failed unit runs again, and which units wait for it."""
