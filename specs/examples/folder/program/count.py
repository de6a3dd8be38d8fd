"""Counts the words of the file that its task got."""

import json
import os
from pathlib import Path

text = Path(os.environ["TASK_FILE"]).read_text(encoding="utf-8")
Path(os.environ["FLEETCTL_RESULT"]).write_text(json.dumps({"words": len(text.split())}))
