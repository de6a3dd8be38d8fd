"""The controller process: its socket, the handlers of requests, and the client's way to find and
start one."""
