"""The screens that show the reply to an apply."""
