"""Finds out who sends a request, and what that caller may do: by a token, or, on the loopback
address, by the user who owns the connection.

Called once for each request. Raises HttpError; never returns a caller without a right.
"""

from __future__ import annotations

import asyncio
import hmac
import os
import pwd
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from fleetctl.common.author import author_name
from fleetctl.common.errors import FleetctlError
from fleetctl.specs.kinds.registry import KINDS, Kind
from fleetctl.stores.access import EVERYWHERE, ROLES, AccessStore

if TYPE_CHECKING:
    from collections.abc import Mapping

VIEWER, EDITOR, ADMIN = ROLES
BEARER = "bearer "
COOKIE = "fleetctl_token"  # of the pages; see sessions.py
JWT_DOTS = 2  # header, claims, signature; a token of ours has none
_TCP_TABLES = ("/proc/net/tcp", "/proc/net/tcp6")
_ESTABLISHED = "01"


class HttpError(FleetctlError):
    """An error with a status of HTTP, for what no verb of the command line can meet."""

    def __init__(self, status: int, message: str, *, hint: str = "", code: int = 3) -> None:
        super().__init__(message, hint=hint)
        self.status = status
        self.exit_code = code


@dataclass(frozen=True, slots=True)
class Caller:
    """A user with a role in a namespace, or in all (EVERYWHERE)."""

    user: str
    role: str
    namespace: str
    token: str = ""  # its id; empty for the user of this machine
    address: str = ""
    by_cookie: bool = False
    agent: str = ""  # that acts for the user, by its own claim

    @property
    def author(self) -> str:
        """Returns the name in the audit."""
        return author_name(self.user, self.agent)

    def may(self, role: str, namespace: str = "") -> bool:
        """Returns whether the caller has at least this role there. namespace: empty: anywhere;
        EVERYWHERE: in all."""
        enough = ROLES.index(self.role) >= ROLES.index(role)
        return enough and (not namespace or self.namespace in (EVERYWHERE, namespace))

    def require(self, role: str, namespace: str = "") -> None:
        """Raises HttpError 403 where `may` is false."""
        if self.may(role, namespace):
            return
        where = {"": "", EVERYWHERE: " in all namespaces"}.get(
            namespace, f" in namespace `{namespace}`"
        )
        raise HttpError(
            403,
            f"this needs the role `{role}`{where}; `{self.user}` has `{self.role}`"
            f" in `{self.namespace}`",
            hint=f"fleetctl token create --role {role} --namespace NAMESPACE",
        )

    def require_kind(self, kind: Kind, role: str, namespace: str) -> None:
        """Checks a role for an object: changes of what belongs to no namespace concern all."""
        self.require(role, namespace if kind.namespaced else EVERYWHERE if role != VIEWER else "")

    def namespaces(self, wanted: str = "") -> tuple[str, ...]:
        """Returns the namespaces of a list; empty: all. Raises HttpError for one that is not the
        caller's."""
        if self.namespace == EVERYWHERE:
            return (wanted,) if wanted else ()
        if wanted:
            self.require(VIEWER, wanted)
        return (self.namespace,)


CLUSTER_WIDE = tuple(it.name for it in KINDS.values() if not it.namespaced)


class PeerUser:
    """The user at the other end of a connection of this machine, as the kernel knows. Looked up
    when first needed, and once."""

    def __init__(self, ours: object, theirs: object) -> None:
        self._ours = ours
        self._theirs = theirs
        self._uid: int | None = None
        self._known = False

    def is_us(self) -> bool:
        """Returns whether our own user or root is there; also where the kernel does not report it
        (macOS), and the loopback address decides alone.
        """
        if not Path(_TCP_TABLES[0]).exists():
            return True
        if not self._known:
            self._uid = _find_uid(self._theirs, self._ours)
            self._known = True
        return self._uid in (os.geteuid(), 0)


class ListenAddress(NamedTuple):
    """The server's own address, and what stands in front of it."""

    host: str
    port: int
    behind_proxy: bool = False
    tls: bool = False
    names: tuple[str, ...] = ()  # under which users know it

    @property
    def loopback(self) -> bool:
        return self.host in ("127.0.0.1", "::1", "localhost")

    @property
    def open_to_us(self) -> bool:
        """Returns whether the machine's own user needs no token."""
        return self.loopback and not self.behind_proxy

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.tls else 'http'}://{host}:{self.port}"


class TokenIssuer(Protocol):
    """An issuer of tokens outside of this server; see oidc.py."""

    def find_caller(self, text: str, address: str) -> Caller:
        """Returns the user of a token. Raises HttpError."""
        ...


class CallerCheck:
    """The check of callers. One for a server."""

    def __init__(
        self,
        access: AccessStore,
        listens: ListenAddress,
        issued: TokenIssuer | None = None,
    ) -> None:
        """issued: the check of tokens that are not our own; None: there are no others."""
        self._access = access
        self._listens = listens
        self._issued = issued
        self._us = pwd.getpwuid(os.geteuid()).pw_name

    async def find(
        self,
        headers: Mapping[str, str],
        cookies: Mapping[str, str],
        *,
        peer: PeerUser | None,
        address: str,
        now_s: float,
    ) -> Caller:
        """Returns the caller. Raises HttpError 401."""
        given = headers.get("authorization", "")
        text = given[len(BEARER) :].strip() if given.lower().startswith(BEARER) else ""
        cookie = cookies.get(COOKIE, "") if not given else ""
        if self._issued is not None and text.count(".") == JWT_DOTS:
            return await asyncio.to_thread(self._issued.find_caller, text, address)
        if text or cookie:
            row = await asyncio.to_thread(self._access.check_token, text or cookie, now_s)
            if row is not None:
                return Caller(
                    row.user, row.role, row.namespace, row.id, address, by_cookie=bool(cookie)
                )
            raise HttpError(
                401,
                "this token is not known, has expired or was revoked",
                hint="`fleetctl token create` on the server makes another one",
            )
        if given:
            raise HttpError(401, "the header Authorization must be `Bearer TOKEN`")
        if self._listens.open_to_us and peer is not None:
            if await asyncio.to_thread(peer.is_us):
                return Caller(self._us, ADMIN, EVERYWHERE, address=address)
            raise HttpError(
                401,
                f"another user of this machine needs a token; the server is `{self._us}`'s",
                hint="`fleetctl token create` on the server makes one",
            )
        raise HttpError(
            401,
            "a token is needed here",
            hint="`fleetctl login`, or a header `Authorization: Bearer TOKEN`",
        )


def page_token(cookie: str) -> str:
    """Returns the text that a page sends with a change, beside the cookie that names its user."""
    return hmac.new(cookie.encode(), b"page", sha256).hexdigest()


def _find_uid(theirs: object, ours: object) -> int | None:
    """Returns the user of the socket whose ends are these, by the kernel's table; None for a socket
    that is not of this machine."""
    mine, other = _hex_end(theirs), _hex_end(ours)
    for table in _TCP_TABLES:
        try:
            lines = Path(table).read_text(encoding="ascii").splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            (
                _,
                local,
                remote,
                state,
                *_,
            ) = fields = line.split()
            if state == _ESTABLISHED and _same_end(local, mine) and _same_end(remote, other):
                return int(fields[7])
    return None


def _hex_end(end: object) -> tuple[str, str]:
    """Returns (address, port) as /proc/net/tcp writes them."""
    import ipaddress
    import sys

    assert isinstance(end, tuple)
    packed = ipaddress.ip_address(str(end[0]).partition("%")[0]).packed
    words = [packed[at : at + 4] for at in range(0, len(packed), 4)]
    if sys.byteorder == "little":
        words = [word[::-1] for word in words]
    return b"".join(words).hex().upper(), f"{int(end[1]):04X}"


def _same_end(text: str, end: tuple[str, str]) -> bool:
    """Returns whether both are one end; the table of IPv6 has IPv4 addresses at their end."""
    address, _, port = text.partition(":")
    return port == end[1] and (address == end[0] or address == f"{'0' * 16}FFFF0000{end[0]}")
