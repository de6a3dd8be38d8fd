"""Runs the commands of a team's shared server, and lets most others work over that server.

For every command main.py calls choose_server.py first: `--server`, FLEETCTL_SERVER or the context
in use of contexts.py sets a `ServerFleet` in common/remote.py. Code that would open the store, a
log or the controller's socket then sends requests through the one client of api_client.py, and
remote_entering.py and remote_files.py have a provider's methods for sandboxes and files.
server_plan.py writes local files into manifests, since a server has none of them. `serve`, `token`
and `audit` work on the machine of the controller; `login` and `config` write a file of the user's
own.
"""
