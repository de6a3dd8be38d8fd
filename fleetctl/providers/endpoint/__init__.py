"""Provider `endpoint`: a model is asked for each unit that has a `prompt`; no sandbox is made.

`EndpointProvider.start` is the call itself: it returns once the engine has observed the outcome.
`prompt_row.py` sends a row, checks the answer against the schema, and asks once more where it does
not match. `gateway_connection.py` carries all rows over one WebSocket to the gateway, which keeps
each answer under (run, number): after a crash the same run starts again and gets the answer that is
paid for already. A forgotten call holds no resource, so there are no orphans.
"""
