"""What a reconcile asks of a kind, where units may start, and the plan that it answers with."""
