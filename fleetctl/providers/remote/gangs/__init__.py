"""Runs of several nodes whose nodes are followed as runs of their own: they begin together, the
first failure ends all, and node 0 decides success.

A provider gives the nodes' sandboxes and their addresses; ends are combined here.
"""
