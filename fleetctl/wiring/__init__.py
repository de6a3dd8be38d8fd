"""Connects names to concrete stores and providers, which the packages above do not import.

plugins.py finds a provider's package by its type, in the table of specs/builtin.py or as an entry
point, and imports its parts on request. account_registry.py opens the store and makes a backend for
each account of a process. UnusableBackend stands in for another project's package that cannot be
used: each call reports the fault and its fix, and the work waits. interpreters.py ends the
sandboxes of interpreters whose programs were killed, never those of a living program.
"""
