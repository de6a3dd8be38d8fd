"""The workspace and environment at Modal that a client works in, and the file that remembers where
a store's sandboxes and volumes are.

Called by modal_connection.py for each new connection. Environments do not see each other's objects:
in another one each sandbox would seem to be gone and its work would begin again, on new and empty
volumes.
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
class Workspace:
    """A workspace and an environment at Modal. environment: its name, also where the SDK was given
    no name. Each field may be empty: not known.
    """

    workspace: str
    environment: str

    def __str__(self) -> str:
        return f"{self.workspace}/{self.environment}"  # as in the addresses of modal.com


async def ask_workspace(client: modal.Client) -> Workspace:
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
    return Workspace(workspace.name or "", environment.name or "")


class WorkspaceMemory:
    """The file `workspace` in a provider's directory."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / FILE

    def check(self, now: Workspace) -> None:
        """Raises Refused where the store's objects are in another workspace or environment."""
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

    def note(self, now: Workspace) -> None:
        """Notes that objects of the store may be there from now on. The first note stays."""
        if not self._read().environment:
            make_private(self._path.parent)
            self._path.write_text(str(now))

    def _read(self) -> Workspace:
        try:
            text = self._path.read_text().strip()
        except FileNotFoundError:
            return Workspace("", "")
        workspace, _, environment = text.partition("/")  # the first versions noted no environment
        return Workspace(workspace, environment)
