"""Who asks: bearer tokens of users and of service accounts, and impersonation."""

from __future__ import annotations

import secrets
from collections.abc import Mapping

from tests.emulators.kubernetes.api.call import User
from tests.emulators.kubernetes.store.errors import ApiError
from tests.emulators.kubernetes.store.objects import Store

ADMIN = User("kubernetes-admin", ("system:masters", "system:authenticated"))
ANONYMOUS = User("system:anonymous", ("system:unauthenticated",))
MASTERS = "system:masters"
ACCOUNTS = ("", "serviceaccounts")


class Users:
    """Tokens live as long as the server."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._by_token: dict[str, User] = {}

    def token_for(self, user: User) -> str:
        token = secrets.token_urlsafe(24)
        self._by_token[token] = user
        return token

    def token_of(self, name: str, groups: tuple[str, ...]) -> str:
        return self.token_for(User(name, (*groups, "system:authenticated")))

    def account_token(self, namespace: str, name: str) -> str:
        """Of a service account. Valid while the account of that uid exists."""
        entry = self._store.get(ACCOUNTS, namespace, name)
        uid = entry.object["metadata"]["uid"] if entry is not None else ""
        return self.token_for(account(namespace, name, uid))

    def revoke(self, name: str) -> None:
        """All tokens of a user end to work."""
        self._by_token = {k: v for k, v in self._by_token.items() if v.name != name}

    def of_token(self, token: str) -> User | None:
        found = self._by_token.get(token)
        if found is None or not found.name.startswith("system:serviceaccount:"):
            return found
        _, _, namespace, name = found.name.split(":")
        entry = self._store.get(ACCOUNTS, namespace, name)
        return found if entry and entry.object["metadata"]["uid"] == found.uid else None

    def of_headers(self, headers: Mapping[str, str]) -> User:
        """Raises ApiError 401 for a token that nobody has."""
        said = headers.get("Authorization", "")
        if not said:
            return ANONYMOUS
        kind, _, token = said.partition(" ")
        found = self.of_token(token.strip()) if kind.lower() == "bearer" else None
        if found is None:
            raise ApiError(401, "Unauthorized")
        return found


def account(namespace: str, name: str, uid: str = "") -> User:
    groups = (
        "system:serviceaccounts",
        f"system:serviceaccounts:{namespace}",
        "system:authenticated",
    )
    return User(f"system:serviceaccount:{namespace}:{name}", groups, uid)
