"""What trials reported, as far as decisions need it: curves and the Pareto front."""
