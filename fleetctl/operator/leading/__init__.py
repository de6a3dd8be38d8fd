"""Which of several operators leads: a Lease, and what follows from it."""
