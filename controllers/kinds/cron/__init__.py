"""When a Schedule makes its next object, and which of its finished ones go."""
