"""What a Job waits for before its work begins: a queue's word, and all of its nodes."""
