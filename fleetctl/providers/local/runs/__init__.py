"""Starts the supervisors of runs on this machine, and exchanges messages with them.

supervisors.py decides: it connects to the living supervisor of a (resource, template hash), or
ends the processes that a killed one left and forks the next from a zygote. supervisor_messages.py
builds its config and each order; supervisor_link.py sends orders and receives replies and changes.
gpu_claims.py writes a claim file for each GPU before the order is sent; a claim ends with its run.
A supervisor outlives the controller while a run is in it; the next controller connects to it.
"""
