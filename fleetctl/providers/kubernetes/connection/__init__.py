"""The way to one cluster: who we are to it, what it answers, commands in its pods."""
