"""How the guest and its orders travel into a sandbox."""
