"""Documents that are never stored: their content goes into the manifests beside or below them."""
