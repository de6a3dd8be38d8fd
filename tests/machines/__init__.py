"""Machines for tests, on loopback: Debian's own SSH server and Slurm."""
