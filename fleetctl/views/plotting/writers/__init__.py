"""Plots as files: a page, SVG, PNG, and the terminal."""
