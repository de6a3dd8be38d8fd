"""Sends notices: by a request, a mail, a program. Imports neither engine nor store."""
