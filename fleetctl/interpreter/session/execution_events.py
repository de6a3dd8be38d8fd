"""Builds the events for `execution_event_callback`: when an execution begins, and when it has
ended.
"""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass, field
from typing import Any

PREVIEW_CHARACTERS_MAX = 240
KEYS_MAX = 50


@dataclass(frozen=True, slots=True)
class ExecutionEvents:
    """Makes the events of an execution; sends none."""

    code: str
    profile: str
    started_at_s: float = field(default_factory=time.time)

    def start(self) -> dict[str, Any]:
        return {"phase": "start", "timestamp": self.started_at_s, **self._about()}

    def complete(
        self,
        result_kind: str,
        *,
        success: bool,
        **more: Any,
    ) -> dict[str, Any]:
        """result_kind: `final_output`, `stdout`, `stderr` or `exception`."""
        now_s = time.time()
        return {
            "phase": "complete",
            "timestamp": now_s,
            "duration_ms": int((now_s - self.started_at_s) * 1000),
            **self._about(),
            "success": success,
            "result_kind": result_kind,
            **more,
        }

    def _about(self) -> dict[str, Any]:
        preview = " ".join(self.code.split())
        if len(preview) > PREVIEW_CHARACTERS_MAX:
            preview = preview[:PREVIEW_CHARACTERS_MAX] + "..."
        return {
            "execution_profile": self.profile,
            "code_hash": hashlib.sha256(self.code.encode()).hexdigest()[:16],
            "code_preview": preview,
        }


def output_keys(final: Any) -> list[str] | None:
    if isinstance(final, dict):
        return [str(key) for key in final][:KEYS_MAX]
    return None
