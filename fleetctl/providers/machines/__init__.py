"""The shared part of providers whose machines are people's own: an agent that is shipped to a
machine or to a cluster's login, a line to it, and OpenSSH's own client.

Used by the providers that reach machines by SSH; it knows no provider.
"""
