"""Keeps custom resources and the store equal: pure decisions, and the code that carries
them out.
"""
