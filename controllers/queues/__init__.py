"""Queues: what runs take of a quota, who goes first, who makes room, and what people see of it.
Pure.
"""
