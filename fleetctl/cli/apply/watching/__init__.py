"""`apply --watch`: applies again when a file is saved."""
