"""What a Source does next: which commit is wanted, read, and kept."""
