"""What each provider may hold, and at which price."""
