"""Files that a program may import beside its own: they are shipped as text."""
