"""What all parts of the engine share: state, inbox, messages, queue, settings."""
