"""The processes of a run: made, found, and told to run tasks."""
