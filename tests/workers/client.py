"""`python client.py SOCKET`: hands stdin, stdout and stderr to __main__.py, which listens at
that path, and ends with the worker that got them. Imports little, as one starts for each worker.
"""

import socket
import sys

with socket.socket(socket.AF_UNIX) as connection:
    connection.connect(sys.argv[1])
    socket.send_fds(connection, [b"."], [0, 1, 2])
    connection.recv(1)
