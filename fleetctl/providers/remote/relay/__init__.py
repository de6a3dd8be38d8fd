"""The controller's end of the line over which tasks in remote sandboxes ask models; for the other
one see guest/remote/relay. Requests come in under numbers, the gateway on this machine is asked,
and answers go out. The key stays with the gateway, the token of the run here and in its sandbox.
"""
