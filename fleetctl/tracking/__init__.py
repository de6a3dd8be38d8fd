"""The records of each object with unfinished work, in memory and in the store, and of equal
work."""
