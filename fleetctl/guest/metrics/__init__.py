"""What a program prints or writes of metrics without knowing us, made metrics of its run.

Ships into sandboxes with the guest; standard library alone.
"""
