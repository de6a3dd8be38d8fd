"""Hints for a module that a task's Python lacks: the commonest first error of a new job.

Called by journal_runs.py for every provider, so that Python tasks and commands, in whatever guest,
get the same hint. Pure.
"""

from __future__ import annotations

import re
import sys

from fleetctl.guest.nodes.ray import NO_RAY

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


def hint_at_module(message: str) -> str:
    """Returns how the task gets the missing module that its message ends with, or Ray; "" without
    one.
    """
    if NO_RAY in message:
        return "add it: `image: {pip: [ray]}`"
    found = _MISSING.search(message)
    if found is None or found["top"] in sys.stdlib_module_names:
        return ""
    package = _PACKAGES.get(found["top"], found["top"])
    return f"add `image: {{pip: [{package}]}}`, or `source` where the module is yours"
