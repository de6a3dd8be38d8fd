"""The machine that carries plans out: queue, loop, effects, observation, the socket for
requests.
"""
