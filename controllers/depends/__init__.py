"""Decides if an object may begin, by the objects that it depends on. Pure.

edges.py reads the dependencies from a spec: work to wait for, and data to take. Before a pass,
engine/decide/dependencies.py passes the rows of these objects to dependency_status.py, which
returns the blocker, if any; only the outcome of a dependency's newest spec counts. release_key in
edges.py identifies the work whose dependencies were met: a change of parallelism, limits or
placement keeps the key. results.py checks the results of an object that are to become tasks.
"""
