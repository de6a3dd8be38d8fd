"""The proxy between tasks and the model servers of their Endpoints, a process of its own.

It knows neither engine nor store: the controller sends it endpoints and grants over a socket, and
reads the usage back. It never logs, and its only file with prompts is the cache that an Endpoint
requests.
"""
