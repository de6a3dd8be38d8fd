"""Provider `kubernetes` before a model of an API server, in virtual time."""
