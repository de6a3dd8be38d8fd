"""The waits of a Job before its work begins: for a queue's admission, and for all of its nodes."""
