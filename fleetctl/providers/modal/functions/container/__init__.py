"""Modules that are shipped into the containers of functions, beside the guest."""
