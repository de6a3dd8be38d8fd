"""Lets a coding agent work with a fleet over the Model Context Protocol, and no further than it was
given.

`tools.py` makes the tools from the OpenAPI document of `fleetctl.server`, and calls that API in
this process as a user with one namespace and one role; `agent_limits.py` refuses what would cost
more, or change the rules that bind the agent; `mcp_server.py` speaks the protocol and asks the
person at the client for consent; `mcp_waits.py` serves the tool `wait`, as a task where the client
knows tasks; `mcp_http.py` serves many users by their tokens. Nothing here adds consent of its own.
Called by `fleetctl mcp`.
"""
