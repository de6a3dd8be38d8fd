"""Predicts before an object is stored that it will be refused, or wait without end: from the stored
objects, the providers' declared features and this machine, without a request to any cloud.

Called by the socket server for `apply` and `set`, and by validate, plan, diff and dry runs.
"""
