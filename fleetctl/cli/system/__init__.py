"""The controller process and its store, from outside: its lock, its end, its backups."""
