"""One run: its attempt, what it tells, and what its volumes keep of it."""
