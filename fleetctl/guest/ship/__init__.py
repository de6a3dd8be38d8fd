"""Ships the guest and its orders into a sandbox."""
