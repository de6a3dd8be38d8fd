"""The tasks' side of the gateway: their requests, and the answers."""
