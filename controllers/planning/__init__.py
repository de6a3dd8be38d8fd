"""The questions that a reconcile puts to a kind, the placement of units, and the resulting plan."""
