"""Queues: how much of a quota a run uses, which object starts first, which runs are preempted, and
the status that users see. Pure.
"""
