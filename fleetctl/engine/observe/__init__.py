"""What the engine learns of runs and of providers, and the records it makes of that."""
