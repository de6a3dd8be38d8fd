"""The SDK and its client: credentials, errors, rates and settings."""
