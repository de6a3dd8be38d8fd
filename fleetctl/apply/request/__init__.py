"""The fields and options of an apply request, read and checked."""
