"""What a provider implements, and what its package says of itself."""
