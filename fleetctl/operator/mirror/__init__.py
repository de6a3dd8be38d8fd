"""Keeps custom resources and the objects of the store equal, while this process leads.

An event of either side marks a key in the queue of `resource_mirror.py`. `choose_action` in
`custom_resource.py`, which is pure, returns the one next action: our finalizer comes first, then
`applier.py` applies the resource as a user's manifest, and the finalizer goes once the stored
object is gone. A cache may be old, so a doubt is settled by a request for that one resource before
anything is deleted or begun again. `statuses.py` computes statuses, `cluster_writer.py` writes.
"""
