"""What a run may see and do: namespaces, mounts, volumes, privileges."""
