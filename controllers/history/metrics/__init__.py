"""Keeps the reports of trials, as far as decisions need them: curves and the Pareto front."""
