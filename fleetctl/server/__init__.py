"""The API of a team: `fleetctl serve`, a process of its own.

Reads the store as `get` does, and sends changes to the controller over its socket, as the verbs do;
it writes nothing but its own tokens and audit. `route_table.py` is the one list of routes: the
handlers, the checks of roles and the OpenAPI document are made from it. Around all routes stand
`api_server.py` (slow and idle clients), `guard.py` (hosts, origins, sizes, rates, headers) and
`callers.py` (who asks, and what they may).
"""
