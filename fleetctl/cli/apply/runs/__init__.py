"""Makes the manifest of `fleetctl run`: from a file and another command, or from flags alone."""
