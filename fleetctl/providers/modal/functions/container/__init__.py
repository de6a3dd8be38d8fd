"""Modules that are shipped into the containers of functions, beside the guest.

fleetctl_body.py is the deployed function: it claims the run in its latch, reloads the volumes and
returns the guest's frames, compressed; a call that finds the latch taken begins no work.
fleetctl_attempt.py runs the guest, forked by the process of fleetctl_nest.py: in the worker that an
earlier task of the job left open, else in a fresh directory. Volumes are committed before the end
is returned. In a cluster fleetctl_gang.py lets node 0 lead, through the Dict of the run's latch.
They import only the standard library of Python 3.9, the guest and Modal's SDK.
"""
