"""Defines the two ends of a pass: the questions to a kind, and the plan that results.

KindController (kind_controller.py) is the base class of a running kind: next() gives the units to
start, verdict() the end of the object; an optional question has a default there.
placement.py judges every provider that a spec names, with a sentence why it won or lost.
plan.py holds the actions, each with its reason. engine/decide/passes.py runs lint_plan on every
plan before an action is recorded; a plan that breaks a promise is dropped. Pure.
"""
