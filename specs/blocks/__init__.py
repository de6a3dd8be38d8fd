"""What several kinds have in common: template, placement, rules, cache."""
