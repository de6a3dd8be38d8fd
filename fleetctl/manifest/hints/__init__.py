"""What a person most likely meant, and what a field is called elsewhere."""
