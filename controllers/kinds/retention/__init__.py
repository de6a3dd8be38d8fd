"""What of all that is over has to go: limits, and the decision."""
