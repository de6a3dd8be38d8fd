"""SHA-256 without OpenSSL: `hashlib` would load it into the process from which tasks are forked,
and each would pay for its memory at its fork and at its exit. And the journal's line that has one.
"""

from __future__ import annotations

from fleetctl.guest.task.text import quote

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

try:
    from _sha2 import sha256 as _sha256  # Python 3.12 and later
except ImportError:
    try:
        from _sha256 import sha256 as _sha256
    except ImportError:  # an interpreter built without its own; then OpenSSL it is
        from hashlib import sha256 as _sha256


def sha256(data: bytes) -> Any:
    return _sha256(data)


def result_line(text: str) -> str:
    """Returns the journal's line for a result."""
    data = text.encode()
    sha = sha256(data).hexdigest()
    return f'{{"e":"result","sha256":"{sha}","bytes":{len(data)},"text":{quote(text)}}}\n'
