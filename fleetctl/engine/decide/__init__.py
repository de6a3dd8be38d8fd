"""One pass over one object: load, decide, and write the intent."""
