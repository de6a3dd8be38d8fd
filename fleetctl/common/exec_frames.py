"""The frames of a command's streams over a websocket: bytes with the number of their stream in
front, and messages as JSON texts. Read by the server and by the command line.

The client's first message is the command. Input is sent as far as the command takes it: the server
reports how much it took, and never has more than WINDOW_BYTES of it; output waits for its reader.
"""

from __future__ import annotations

STDIN, STDOUT, STDERR = 0, 1, 2
PIECE_BYTES = 64 * 1024
WINDOW_BYTES = 256 * 1024  # of input that the command has not taken
MESSAGE_BYTES_MAX = 1024 * 1024  # of one frame; a command with its arguments is one
EXEC_PATH = "/api/v1/exec"
