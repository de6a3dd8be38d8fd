"""Documents that are never stored: what they say goes into the manifests beside or below them."""
