"""Where specs and records are kept. `base` is the seam, `sqlite` the embedded store, `reader` the
CLI's view.
"""
