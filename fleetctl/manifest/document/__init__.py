"""Checks a document as a whole: its envelope, namespace, size, and unsupported features."""
