"""Finds the author of a change: a user, and the coding agent that acts for the user.

Agents name themselves in the environment of the programs that they start. The name is a claim of
the caller and gives no right: the token or the state directory's own user decides what is allowed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

AGENT_HEADER = "X-Fleetctl-Agent"
# A variable, and the agent that sets it; empty: the variable's own value is the name. The first
# that is set counts. Variables that editors also set for the terminals of people are left out.
AGENT_VARIABLES = (
    ("AI_AGENT", ""),
    ("CLAUDECODE", "claude-code"),
    ("CODEX_SANDBOX", "codex"),
    ("CODEX_THREAD_ID", "codex"),
    ("CURSOR_AGENT", "cursor"),
    ("GEMINI_CLI", "gemini-cli"),
    ("OPENCODE", "opencode"),
    ("AUGMENT_AGENT", "augment"),
    ("ANTIGRAVITY_AGENT", "antigravity"),
    ("COPILOT_CLI", "copilot"),
    ("GOOSE_TERMINAL", "goose"),
    ("AMP_CURRENT_THREAD_ID", "amp"),
)
VIA = " via "
# Annotations: who applied the object last, and who made it; none where the user of the state
# directory typed the command.
AUTHOR = "fleetctl.dev/applied-by"
CREATOR = "fleetctl.dev/created-by"

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,39}")


def find_agent(environment: Mapping[str, str]) -> str:
    """Returns the agent that started this process; empty where a person did."""
    for variable, name in AGENT_VARIABLES:
        if value := environment.get(variable):
            return name or parse_agent(value)
    return ""


def parse_agent(text: str) -> str:
    """Returns an agent's name in small letters and with `-` for spaces; empty where the text is no
    name."""
    name = "-".join(text.lower().split())
    return name if _NAME.fullmatch(name) else ""


def author_name(user: str, agent: str) -> str:
    """Returns `ana`, or `ana via codex`: the name that objects, events and the audit show."""
    return f"{user}{VIA}{agent}" if agent else user
