"""What is kept in memory and in the store of each object under way, and of equal work."""
