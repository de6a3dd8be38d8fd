"""The interface that a provider implements, and the description of its package."""
