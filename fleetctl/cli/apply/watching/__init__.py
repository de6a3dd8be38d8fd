"""`apply --watch`: apply again when a file is saved."""
