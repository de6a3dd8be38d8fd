"""W&B's service: the calls that a sweep there needs, without the package of that name."""
