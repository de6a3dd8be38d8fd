"""A Kubernetes cluster of our own, as its clients see it: the API server over TLS, the controllers
of Jobs, garbage and namespaces, a scheduler, and nodes whose pods are real processes of this
machine. See running.py for how a test starts one.

What it does not have: networks of pods (they share this machine's), images (each is this machine's
files, see settings.Settings.images), admission webhooks, aggregated APIs, answers in protobuf,
SPDY without a websocket around it (kubectl before 1.30), controllers of StatefulSets, DaemonSets
and CronJobs, rolling updates, entries of managedFields for what its own controllers write.
"""
