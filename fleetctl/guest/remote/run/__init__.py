"""One run: its attempt, its output and metrics, and the files that its volumes keep."""
