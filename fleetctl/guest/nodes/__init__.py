"""Several machines that work as one: what each is told, and what their ends come to. Pure."""
