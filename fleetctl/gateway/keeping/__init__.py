"""The data that outlives a kill of the gateway: usage of runs, and answers that are to be kept."""
