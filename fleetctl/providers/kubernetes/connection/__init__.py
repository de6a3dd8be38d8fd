"""The connection to a cluster: our credentials, its answers, commands in its pods."""
