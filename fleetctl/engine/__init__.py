"""The machine that carries plans out: queue, loop, calls, observation, the socket for
requests.
"""
