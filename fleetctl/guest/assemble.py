"""Makes the one file that is shipped into a sandbox. Called by providers; never runs in a sandbox.

Deterministic: the same sources give the same text, so that its hash can name it.
"""

from __future__ import annotations

import re
from pathlib import Path

PARTS = ("chunking.py", "volumes.py", "task.py")  # in the order in which they need each other


def guest_source() -> str:
    """The guest as one Python text; its parts see each other's names as globals."""
    here = Path(__file__).parent
    bodies = [_without_own_imports((here / part).read_text(encoding="utf-8")) for part in PARTS]
    return "from __future__ import annotations\n\n" + "\n\n".join(bodies)


def _without_own_imports(text: str) -> str:
    """Drop the imports that only make sense in a package."""
    text = re.sub(r"^from fleetctl\.guest\S* import (\([^)]*\)|.*)$", "", text, flags=re.MULTILINE)
    return text.replace("from __future__ import annotations\n", "").strip() + "\n"
