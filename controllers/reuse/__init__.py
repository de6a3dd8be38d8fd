"""Decides which earlier work counts: from the result cache, and after a changed spec."""
