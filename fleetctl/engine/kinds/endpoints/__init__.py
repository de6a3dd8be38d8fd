"""Keeps the gateway of model endpoints running, and charges the calls of runs through it.

endpoints.py has two loops beside the ticks. One starts the gateway process while there is an
Endpoint, and sends it servers and grants; the other receives the usage that grants.py stores and
charges to budgets. A run that needs the gateway starts only once the gateway serves the present
spec and has taken the run's grant; until then `join` raises Unavailable and the start waits.
served_functions.py supplies servers that are Functions, endpoint_status.py the status. The caps in
a grant are enforced by the gateway, so that they hold when either process is killed.
"""
