"""The SDK and its client: credentials, errors, throttles and settings."""
