"""What has happened to the units of one object, kept incrementally."""
