"""Prepares the files that runs on this machine share: environments, sources and volumes.

Before a supervisor starts, runs/supervisor_messages.py calls envs.py and local_source.py.
Environments are keyed by Python and requirements, checkouts by URL and commit; each is built
beside its final path and renamed when complete, so that one which exists is whole. A source is
then copied once a supervisor, so that all runs of a template see the same files. local_caches.py
has a lock beside each cached directory: users share it to note the use, a remover holds it alone.
Volumes are plain directories; links that lead out of a volume are not followed.
"""
