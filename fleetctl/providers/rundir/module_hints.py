"""Hints for a module that a task's Python lacks: the commonest first error of a new job.

Called by journal_runs.py for every provider, so that Python tasks and commands, in whatever guest,
get the same hint. Pure.
"""

from __future__ import annotations

import re
import sys

from fleetctl.specs.values.hints import with_hint

_MISSING = re.compile(r"ModuleNotFoundError: No module named '(?P<top>\w+)[\w.]*'\s*\Z")
# Modules that many tasks import, and whose package has another name.
_PACKAGES = {
    "bs4": "beautifulsoup4",
    "cv2": "opencv-python-headless",
    "dateutil": "python-dateutil",
    "dotenv": "python-dotenv",
    "PIL": "pillow",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "yaml": "pyyaml",
}


def with_module_hint(message: str) -> str:
    """`message`, and where it ends with a module that is not there, how the task gets it."""
    found = _MISSING.search(message)
    if found is None or found["top"] in sys.stdlib_module_names:
        return message
    package = _PACKAGES.get(found["top"], found["top"])
    hint = f"add `image: {{pip: [{package}]}}`, or `source` where the module is yours"
    return with_hint(message.rstrip(), hint)
