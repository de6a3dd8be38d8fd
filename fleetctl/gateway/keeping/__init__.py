"""What outlives a kill of the gateway: what was used, and answers that were asked to be kept."""
