"""What an apply answers, as its screen."""
