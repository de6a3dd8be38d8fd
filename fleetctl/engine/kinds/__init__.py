"""What the engine does for single kinds, a package each, beside the work that all share."""
