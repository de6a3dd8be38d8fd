"""The runs of a provider with remote sandboxes: begun, followed, mirrored on this machine."""
