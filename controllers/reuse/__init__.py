"""Which work counts again: from the result cache, and after a changed spec."""
