"""Into a task or a volume: exec, port-forward, cp, ls, rm."""
