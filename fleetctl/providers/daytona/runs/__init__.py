"""Creates, finds, enters and ends the sandboxes of runs at Daytona."""
