"""A conversation of code and results with one sandbox at a time, from its start to its end."""
