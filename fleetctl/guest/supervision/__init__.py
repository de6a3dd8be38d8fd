"""Code shared by all supervisors of runs: processes, services, GPUs and progress."""
