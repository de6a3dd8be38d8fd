"""What the keeper waits for: descriptors, times and clients."""
