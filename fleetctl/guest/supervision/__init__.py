"""Watches processes for every supervisor of runs, the local one and the one in remote sandboxes.

`processes.py` marks the processes of a run by a limit that survives exec, double forks and a
cleared environment, and reads /proc. `pace.py` is called once a second: it reports GPU samples and
when a run without progress has to end. `services/` leads the services beside the work.
`fleetctl_server.py` stands alone: it ships into containers of Functions with a `port`, and passes
only requests with the key to their server. Supervisors decide how a run ends; this package reports.
"""
