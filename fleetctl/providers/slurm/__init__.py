"""Provider `slurm`: work in a Slurm cluster, one batch job a sandbox.

All messages go through the cluster's shared directory; one `squeue` asks the scheduler for all
jobs. A job that left its memory is decided by the journal in that directory.
"""
