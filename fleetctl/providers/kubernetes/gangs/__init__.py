"""Runs of several nodes: pods that begin together, and end as one."""
