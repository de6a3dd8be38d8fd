"""Jobs and their pods: made, begun, followed, ended."""
