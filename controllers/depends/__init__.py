"""Work that depends on other work: the status of a dependency, and the edges between objects.
Pure.
"""
