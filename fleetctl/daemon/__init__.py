"""The controller process: the one process that writes specs and runs the engine.

serve.py takes the store's lock, wires store, providers and engine, and opens the socket. api.py
reads one line of JSON a connection, from the owner of the state directory alone, and passes it on:
manifests to receive.py, requests on stored objects to verbs.py, which has adopt.py record orphans.
A handler stores the change and replies; it starts no run, for the engine's next tick decides.
background_work.py does sweeps and backups beside the engine. Commands find the process, start it
and send it requests by client/.
"""
