"""Where backups lie: files and directories of this machine, and what fsspec reaches elsewhere."""
