"""Copies of the state that are made when the settings say so."""
