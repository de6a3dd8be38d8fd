"""Notices: written with the change that they report, and delivered beside the ticks."""
