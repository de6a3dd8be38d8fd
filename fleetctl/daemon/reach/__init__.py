"""How a command finds, starts and waits for the controller process."""
