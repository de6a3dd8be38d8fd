"""The commands of the guest that a provider can run."""
