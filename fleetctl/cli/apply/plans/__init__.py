"""`fleetctl plan`: as a screen, JSON, Markdown, and as a file that `apply` takes up again."""
