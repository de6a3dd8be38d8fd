"""Carries model calls of tasks whose sandbox cannot reach the gateway.

`keeper.py` binds a port of the sandbox's loopback before the first such task, and starts the
process of `process.py` behind it, again whenever it dies. That process accepts a request only with
the token of the present run. `calls.py` numbers the requests and sends them over the line that the
guest's verb `relay` opens to the controller. A line may break at any moment: the next line carries
each unfinished request again, with the number of bytes that its client has.
"""
