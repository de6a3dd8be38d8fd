"""Makes or finds the parts that a sandbox on Daytona is created from: snapshot, volumes, source.

Before a create, `daytona_images.py` finds or builds the snapshot of image and size with the guest
in it, once for all runs that wait; `daytona_volumes.py` makes missing volumes and waits until they
are ready. After it, `daytona_source.py` brings the code in. Snapshots and volumes outlive runs. A
snapshot's name shows its store, account and target (`daytona_snapshots.py`): a store deletes only
its own, after a week without use or to make room under the quota.
"""
