"""Gets into a task or a volume: exec, port-forward, cp, ls, rm.

Each verb finds its target in the store (cli/targets/task.py) and calls the provider directly, or
through a server; the controller takes no part. A running task is entered through its sandbox: exec
runs the command there, cp runs `tar`. Files of an ended task come from its volumes, its kept
outputs or the work directory that it left on this machine (cp_run.py). cp_volume.py plans copies
of volumes by the rules of `docker cp`. tar.py never writes through a link below the user's target.
"""
