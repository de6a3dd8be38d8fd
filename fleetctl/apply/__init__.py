"""From a manifest to a committed change: draft, compare, predict, ask, store."""
