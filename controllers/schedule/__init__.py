"""What a pass starts, stops and waits for."""
