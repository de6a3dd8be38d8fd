"""A Python task: its namespace, its program, its helpers, its end."""
