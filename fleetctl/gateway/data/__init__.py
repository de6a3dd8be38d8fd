"""Serves the tasks' port of the gateway: their requests, and the answers.

entrance.py admits few connections that have sent no request, since any local user can connect.
task_api.py finds the caller by its token, the endpoint by path or model, and refuses what no grant
allows; asking/ answers the call, or batching/ for a path that begins with /batch. A call with a
number goes through idempotent_calls.py: it is sent once however often a task repeats it, and goes
on when the connection is lost. listing.py answers requests that need no model, free of charge. A
refusal is an HTTP answer with a reason; no prompt is logged.
"""
