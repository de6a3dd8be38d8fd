"""The control plane: one class of all parts, and who may call it."""

from __future__ import annotations

from collections.abc import Mapping

from grpclib import GRPCError, Status

from . import ids
from .apps import Apps, Secrets
from .billing import Billing
from .blobs import Blobs
from .dicts import Dicts
from .environments import Environments
from .function_calls import FunctionCalls
from .function_cluster import Clusters
from .functions import Functions
from .images import Images
from .logs import Logs
from .sandbox_rpcs import Sandboxes
from .state import NO_ACCESS_TOKEN_ID, TOKEN_ID, TOKEN_SECRET, World
from .stats import Stats
from .uploads import ClientMounts
from .volumes import Volumes

OPEN_TO_ALL = ("ClientHello",)


class ControlPlane(
    Apps,
    Secrets,
    Environments,
    Images,
    ClientMounts,
    Sandboxes,
    Logs,
    Stats,
    Volumes,
    Blobs,
    Dicts,
    Functions,
    FunctionCalls,
    Clusters,
    Billing,
):
    """Handlers by the names of their RPCs; each part says what it needs of the others."""

    def __init__(self, world: World) -> None:
        self.world = world

    def admit(self, rpc: str, headers: Mapping[str, str]) -> None:
        """Raises UNAUTHENTICATED or PERMISSION_DENIED. V2 calls carry a token of their own, too."""
        token_id = headers.get("x-modal-token-id", "")
        if token_id == NO_ACCESS_TOKEN_ID and rpc not in OPEN_TO_ALL:
            raise GRPCError(Status.PERMISSION_DENIED, "This token has no access to the workspace")
        known = (token_id, headers.get("x-modal-token-secret")) == (TOKEN_ID, TOKEN_SECRET)
        if not known and token_id not in self.world.boxes and token_id != NO_ACCESS_TOKEN_ID:
            raise GRPCError(
                Status.UNAUTHENTICATED,
                "Token missing. Could not authenticate client."
                if not token_id
                else "Token ID or secret is invalid",
            )
        second = rpc.startswith("Sandbox") and rpc.endswith("V2")
        if second and ids.jwt_subject(headers.get("x-modal-auth-token", "")) is None:
            raise GRPCError(Status.UNAUTHENTICATED, "The auth token is missing or has expired")


def admit_to_router(_rpc: str, headers: Mapping[str, str]) -> None:
    """Any task's token of ours is let in: what it names is looked up in the request."""
    kind, _, token = headers.get("authorization", "").partition(" ")
    if kind != "Bearer" or ids.jwt_subject(token) is None:
        raise GRPCError(Status.UNAUTHENTICATED, "The task token is missing or has expired")
