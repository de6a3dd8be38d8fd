"""What `fleetctl run` makes: of a file and another command, or of flags alone."""
