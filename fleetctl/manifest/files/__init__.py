"""Turns paths and addresses on a command line into documents with all included files."""
