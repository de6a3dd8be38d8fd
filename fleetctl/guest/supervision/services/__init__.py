"""Services beside the work of an attempt."""
