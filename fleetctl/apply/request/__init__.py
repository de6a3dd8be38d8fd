"""What an apply is asked: its fields and options, read and checked."""
