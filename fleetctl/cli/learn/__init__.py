"""What can be written and typed: explain, schema, init, convert, completion."""
