"""Computes the trials of a sweep: their points, their command lines and the best one.

kinds/sweep.py builds on it. points.py computes a point from (search, seed, index) alone, so a trial
can be made in any order, after any restart. A bayes search draws its first points and suggests
each later one from the results: by bayes.py or tpe.py, which the engine runs outside its loop.
command.py expands W&B's macros; early_terminate.py stops trials as W&B's Hyperband does.
winner.py finds the best trial for other objects; prior.py takes the trials of an earlier sweep.
"""
