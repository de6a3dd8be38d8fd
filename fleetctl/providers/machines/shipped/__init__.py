"""Programs that run on users' own machines: standard library only, Python 3.9 and later.

agent_bundle.py joins these files and the guest, and the agent's first start of a version stores
them on the machine. agent.py serves one controller and leaves with its connection; runs belong to
supervisors that it forked. boxes.py decides all claims (slot, cores, memory, GPUs, paths) under
one lock; a box is found by its name alone. In a Slurm job allocation.py begins the runs, by orders
that come as files. warden.py ends the boxes of a controller that was silent for its lease.
No file here imports fleetctl, except the guest and its neighbours.
"""
