"""Decides when a Schedule makes its next object, and which finished ones to delete."""
