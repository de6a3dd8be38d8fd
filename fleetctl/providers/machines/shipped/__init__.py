"""Programs that run on machines of people's own: shipped there by agent_bundle.py, standard library
only, Python 3.9 and later.
"""
