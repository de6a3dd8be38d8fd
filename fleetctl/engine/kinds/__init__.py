"""Handles single kinds in the engine, a package each, beside the work that all share."""
