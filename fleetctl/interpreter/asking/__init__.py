"""What code of an interpreter may ask the host: a language model, and recursive queries."""
