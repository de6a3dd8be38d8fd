"""A Kubernetes API server as we talk to it: raw dicts, our deadlines, an informer.

Shared by the provider `kubernetes` and by the operator; knows neither pods nor our kinds. The
package `kubernetes` is imported when a connection is made.
"""
