"""The ground floor: errors, clock, home directory, text, version. Imports nothing above it."""
