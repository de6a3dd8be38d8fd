"""The controller's connection to the gateway, which is a process of its own."""
