"""What is known to be refused, or to wait without end, before it is stored: by the objects that
there are, the providers' own word and this machine, without asking any cloud.

Called by the socket server for `apply` and `set`, and by validate, plan, diff and dry runs.
"""
