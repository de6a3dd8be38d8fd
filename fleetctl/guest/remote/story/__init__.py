"""A run's story as frames on stdout, from any offset."""
