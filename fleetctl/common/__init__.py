"""The ground floor: errors, clock, state directory, text, version. Imports no module above it."""
