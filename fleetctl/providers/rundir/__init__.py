"""The files of a provider's runs on this machine: a journal and a log each, below the state
directory.

The same paths and formats for every provider, so that the command line reads logs without one.
"""
