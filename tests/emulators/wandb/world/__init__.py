"""What the emulated service knows: sweeps, their points, runs, agents."""
