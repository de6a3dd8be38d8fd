"""Rules over several fields, as an API server can check them at once: CEL, for the CRDs. Pure.

They stand beside the model's own validator, which stays the law: these catch a mistake while
`kubectl apply` still waits. Only fields with one type may be named; CEL does not see the others.
"""

from __future__ import annotations

from typing import Any

KEY = "x-kubernetes-validations"


def at_most_one(*fields: str, message: str) -> dict[str, Any]:
    """Returns a rule for a model's `json_schema_extra`. fields: as a manifest has them; no field is
    a reserved word of CEL, such as `function`.
    """
    there = [f"has(self.{field})" for field in fields]
    pairs = [f"!({one} && {other})" for at, one in enumerate(there) for other in there[at + 1 :]]
    return {KEY: [{"rule": " && ".join(pairs), "message": message.replace("`", "")}]}
