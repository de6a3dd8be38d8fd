"""Several machines that work as one: the variables of each, and the end of all together. Pure."""
