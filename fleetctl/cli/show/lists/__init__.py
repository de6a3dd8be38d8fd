"""The lists of `get`: objects, tasks, columns, namespaces, and following them."""
