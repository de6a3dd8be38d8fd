"""The client of Modal's SDK, with its credentials, errors, rates and settings."""
