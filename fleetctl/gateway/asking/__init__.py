"""Sends a task's request to a model server, and charges its actual cost.

ask.py does the steps in order: the cache, the limits and the hold of the highest cost, a slot at a
server, the wake of a server that sleeps, and tries until there is an answer or a refusal. call.py
keeps the hold: it is on disk before a request is sent, and becomes the actual cost after each try.
call_attempt.py is one try, whose stream is passed on as it comes; a lost answer is charged by an
estimate. Which failure is tried again is decided in rules/. Called by data/ for each request; once
a part of an answer has reached the task, the call is never sent to another server.
"""
