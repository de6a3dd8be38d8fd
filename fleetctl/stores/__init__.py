"""Stores specs and records. `base` is the seam, `sqlite` the embedded store, `reader` the CLI's
view.
"""
