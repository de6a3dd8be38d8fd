"""How often a service is called, and what happens when it throttles."""
