"""Sends requests of commands to the controller, and starts one where none runs.

socket_client.py exchanges one line of JSON for one reply; without a listener spawn.py starts the
controller in the background, waits until it replies to a ping as ready, and sends again. The
store's lock shows which process is the controller, never a pid file: lock_holder.py reads it, and
distinguishes a busy process from a hung one. With a server in common/remote.py the request goes to
that server, and no process is started here. Imports stay few: `get` and `--help` load these files.
"""
