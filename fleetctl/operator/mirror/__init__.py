"""Custom resources and the store, held to each other: pure decisions, and what carries them out."""
