"""An emulator of W&B's backend."""
