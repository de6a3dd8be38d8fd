"""Remote sandboxes: names and tags, made once, ended until confirmed."""
