"""What is worth a notice, and what it says."""
