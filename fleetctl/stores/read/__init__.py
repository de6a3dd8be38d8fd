"""The store read without being its writer, and without a controller."""
