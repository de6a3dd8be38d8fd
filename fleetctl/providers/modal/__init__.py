"""Provider `modal`: runs as sandboxes on Modal, through its own SDK.

`modal_provider.py` is the face. No module here imports the SDK before something is asked of Modal:
it takes most of a second, and many commands never need it.
"""
