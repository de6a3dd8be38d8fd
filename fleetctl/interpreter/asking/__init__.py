"""Handles requests of an interpreter's code to the host: a language model, and recursive
queries.
"""
