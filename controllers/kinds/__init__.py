"""What each kind wants: one file a kind."""
