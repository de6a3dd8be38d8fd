"""The driver: a process that serves an interpreter from inside a sandbox.

`assemble.driver_source` ships it as one file. main.py reads one JSON message a line from its host,
executes orders in turn, and replies. A second thread receives meanwhile, so that interrupts and the
host's answers arrive while code runs. execution.py keeps the namespace from one execution to the
next, and turns errors of code into text. channel.py moves the line to descriptors that code cannot
reach, captures output, and runs contexts as processes of their own. The driver ends with its line,
or when it is idle for too long. Standard library only, Python 3.9 and later; imports the guest's
helpers and no more of fleetctl.
"""
