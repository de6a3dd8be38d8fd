"""Model calls of tasks whose sandbox does not see the gateway: a listener on the sandbox's own
loopback, and a line to the controller over which requests go out and answers come in.
"""
