"""Plans an apply in the process of a user, from the stored rows: no controller, no change."""
