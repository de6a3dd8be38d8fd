"""How a controller reaches the gateway, which is a process of its own."""
