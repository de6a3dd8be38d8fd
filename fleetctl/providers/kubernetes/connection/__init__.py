"""Holds the connection to a cluster: credentials, namespaces, errors, and commands in pods.

`KubernetesConnection` connects at the first call that needs it, shared by all callers, and again
when the account's context changes; `link_for` chooses the namespace in which the work of an
object's namespace runs. `cluster_call` in `kubernetes_errors.py` gives a call our deadline and
decides whether it was certainly not carried out; a proxy's page is no reply of the API server.
`pod_channel.py` carries the streams of one command in a pod over one WebSocket.
"""
