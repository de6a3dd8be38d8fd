"""Provider `slurm`: work in a Slurm cluster, one batch job a sandbox.

All words go over the cluster's shared directory; the scheduler is asked by one `squeue` for all
jobs. A job that left its memory is decided by the journal in that directory.
"""
