"""The command line itself: verbs, flags, their values, and what a crash leaves."""
