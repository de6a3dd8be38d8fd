"""Model endpoints: the gateway beside the controller, who may call it, and what the calls cost."""
