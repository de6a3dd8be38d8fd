"""Recognises a run's training checkpoints, resumes from them, sets them aside and keeps few."""
