"""The command line itself: verbs, flags, their values, and reports of crashes."""
