"""Following work as it happens: wait, progress, logs."""
