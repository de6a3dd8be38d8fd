"""What is written to the store, each in one transaction: commit, edit, retry."""
