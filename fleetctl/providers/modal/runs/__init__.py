"""Makes, finds, enters and ends the sandboxes of runs at Modal.

modal_creator.py requests one sandbox a run, with its name and tags in the request; where the name
exists or the reply is lost, it adopts the sandbox of that name. A create that waits for a GPU goes
on in the background. modal_sandboxes.py implements the Sandboxes protocol of providers/remote,
checks the tags of a sandbox for our store, and sorts its end by a table, first match wins.
modal_streams.py starts the guest's verbs through the SDK's exec, each with a deadline at Modal.
A run's outcome is in its journal alone; a fate explains a sandbox that left no end record.
"""
