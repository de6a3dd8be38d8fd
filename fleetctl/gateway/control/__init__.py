"""The controller's side of the gateway: what it sends in, and what it hears."""
