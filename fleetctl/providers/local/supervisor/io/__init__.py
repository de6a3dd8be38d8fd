"""What the supervisor waits for: descriptors, times and clients."""
