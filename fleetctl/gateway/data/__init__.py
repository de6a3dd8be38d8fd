"""The tasks' side of the gateway: what they ask, and how it is told to them."""
