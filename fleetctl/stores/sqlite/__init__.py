"""The embedded store: a writer a file, one table each."""
