"""Reports of a run: its output and events, the files it writes, and how it ended."""
