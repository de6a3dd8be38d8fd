"""Images, volumes, secrets and sources at Modal."""
