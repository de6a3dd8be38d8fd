"""The token by which an attempt of a task names itself to the gateway; derived, so never stored."""

import base64
import hashlib
import hmac


def gateway_token(key: bytes, run: str) -> str:
    """Returns a token that is the same for the same key and run after any restart, of the gateway
    or of the controller.
    """
    digest = hmac.new(key, run.encode(), hashlib.sha256).digest()
    return "fl-" + base64.urlsafe_b64encode(digest).decode().rstrip("=")
