"""The processes of a run: starts them, finds them, and gives them tasks."""
