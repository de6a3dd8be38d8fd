"""Model calls of tasks whose sandbox cannot reach the gateway: a listener on the sandbox's own
loopback, and a line to the controller over which requests go out and answers come in.
"""
