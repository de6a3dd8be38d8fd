"""Objects that make others at the times that a line of cron names."""
