"""What a run reports: its output and events, the files it writes, and how it ended."""
