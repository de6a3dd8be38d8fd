"""The keeper: one process per (resource, template) that starts, watches and ends its runs.

Started by path under the image's Python (3.9 or later), standard library only; it survives the
controller and is pid 1 of its own namespaces where the kernel lets it. It is also the zygote from
which Python tasks are forked, so it stays small. Nothing here imports the rest of fleetctl.
"""
