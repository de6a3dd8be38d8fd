"""Provider `daytona`: runs as sandboxes on Daytona, through its own SDK.

`daytona_provider.py` is the face. No module here imports the SDK before something is asked of
Daytona: it takes more than a second and 86 MB, and many commands never need it.
"""
