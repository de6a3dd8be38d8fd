"""Money as admission: budgets and estimates."""
