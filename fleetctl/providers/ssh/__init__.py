"""Provider `ssh`: work on machines of people's own, over OpenSSH.

Capacity is found by asking each host; a lock there orders the claims of all controllers. Sandboxes
are directories below `~/.fleetctl` of the host, and their supervisors outlive every connection.
"""
