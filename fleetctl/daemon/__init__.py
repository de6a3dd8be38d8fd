"""The controller process: its socket, what requests do, and how one is found and started."""
