"""What is checked of one document as a whole: its envelope, namespace, size, and what is
unsupported.
"""
