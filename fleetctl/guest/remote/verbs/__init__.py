"""What a provider can ask of the guest."""
