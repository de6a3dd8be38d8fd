"""The blocks that several kinds share: template, placement, rules, cache."""
