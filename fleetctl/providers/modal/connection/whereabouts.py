"""Where at Modal a client works, which workspace and which environment of it, and the file that
remembers where a store's sandboxes and volumes are.

Called by client.py for each new connection. Nothing of one environment is seen in another: there
each sandbox would seem to be gone and its work would begin again, on new and empty volumes.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fleetctl.common.errors import Refused
from fleetctl.providers.paths import make_private

if TYPE_CHECKING:
    import modal

FILE = "workspace"


@dataclass(frozen=True, slots=True)
class Where:
    """environment: by its name, also where the SDK was told none. Each may be empty: not known."""

    workspace: str
    environment: str

    def __str__(self) -> str:
        return f"{self.workspace}/{self.environment}"  # as in the addresses of modal.com


async def asked(client: modal.Client) -> Where:
    """Asks Modal. Raises Refused for an environment that is not there, and what the SDK raises."""
    import modal
    from modal.config import config

    workspace = modal.Workspace.from_context(client=client)
    await workspace.hydrate.aio()
    environment = modal.Environment.from_context(client=client)
    try:
        await environment.hydrate.aio()
    except modal.exception.NotFoundError as error:
        raise Refused(
            f"Modal's workspace `{workspace.name}` has no environment `{config['environment']}`",
            hint=f"modal environment create {config['environment']}, or unset MODAL_ENVIRONMENT",
        ) from error
    return Where(workspace.name or "", environment.name or "")


class Memory:
    """The file `workspace` in a provider's directory."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / FILE

    def check(self, now: Where) -> None:
        """Raises Refused where nothing of ours is, because it is elsewhere."""
        before = self._read()
        rest = f"another FLEETCTL_HOME; with nothing left there: rm {self._path}"
        if before.workspace and now.workspace and before.workspace != now.workspace:
            raise Refused(
                f"this token is of Modal's workspace `{now.workspace}`, and what this store runs"
                f" is in `{before.workspace}`",
                hint=f"use a token of `{before.workspace}`, or {rest}",
            )
        if before.environment and now.environment and before.environment != now.environment:
            raise Refused(
                f"this is the environment `{now.environment}` of Modal's workspace"
                f" `{now.workspace}`, and what this store runs is in `{before.environment}`",
                hint=f"export MODAL_ENVIRONMENT={before.environment}, run `fleetctl down` and apply"
                f" again; or {rest}",
            )

    def note(self, now: Where) -> None:
        """Note that something of ours may be there from now on. What was noted first stays."""
        if not self._read().environment:
            make_private(self._path.parent)
            self._path.write_text(str(now))

    def _read(self) -> Where:
        try:
            text = self._path.read_text().strip()
        except FileNotFoundError:
            return Where("", "")
        workspace, _, environment = text.partition("/")  # the first versions noted no environment
        return Where(workspace, environment)
