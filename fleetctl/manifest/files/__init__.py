"""From paths and addresses on a command line to documents with all that they include."""
