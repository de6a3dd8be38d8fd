"""The desired runs of each kind: one file a kind."""
