"""Checks the ID or access tokens of an OpenID Connect issuer, and finds the role of their user.

`fleetctl serve --oidc FILE` names the issuer, the audience, and the rules that turn claims into a
role in a namespace; the first rule that fits decides, and a user whom no rule fits has no right.
The issuer's public keys are fetched when the first token comes, kept for KEYS_S, and fetched again
for a key that is not known, at most every REFETCH_S: so a rotated key works at once, and invented
keys cost the issuer nothing. Only signatures with a key pair are taken: neither `none` nor a MAC,
for which a public key could serve as the secret.

Called by callers.py in a thread.
"""

from __future__ import annotations

import json
import logging
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from http.client import HTTPException
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

import jwt
import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fleetctl.common.errors import UsageError
from fleetctl.common.text import escape_line
from fleetctl.server.callers import Caller, HttpError

log = logging.getLogger(__name__)

ALGORITHMS = (
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA",
)  # fmt: skip
KEY_SORTS = ("RSA", "EC", "OKP")
REQUIRED = ("exp", "iat", "iss", "aud", "sub")
SKEW_S = 60.0  # between the issuer's clock and ours
KEYS_S = 3600.0
REFETCH_S = 10.0
FETCH_WAIT_S = 10.0
FETCH_BYTES_MAX = 1024 * 1024
TOKEN_BYTES_MAX = 16 * 1024  # half of the head of a request
USER_CHARACTERS_MAX = 200
DISCOVERY = "/.well-known/openid-configuration"
TOKEN = "oidc"  # noqa: S105 - the column TOKEN of the audit, where a token has its id
LOOPBACK = ("127.0.0.1", "::1", "localhost")

Claims = Mapping[str, Any]
Text = Annotated[str, Field(min_length=1)]


class OidcPart(BaseModel):
    """A part of the file, in which every field is known."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class OidcRule(OidcPart):
    """A rule: users whose claim is, or has in its list, this value have the role in the namespace;
    a rule without a claim fits everybody. namespace: `*`: all."""

    claim: str = ""
    value: str | bool | int = ""
    role: Literal["viewer", "editor", "admin"]
    namespace: Text

    def fits(self, claims: Claims) -> bool:
        if not self.claim:
            return True
        found = claims.get(self.claim)
        values = found if isinstance(found, list) else [found]
        return any(type(it) is type(self.value) and it == self.value for it in values)


class OidcConfig(OidcPart):
    """The file of `--oidc`. user: the claim with the name that the audit and objects show.
    mcp_audience: of tokens for `fleetctl mcp --http`; empty: the address of that resource."""

    issuer: Text
    audience: Text
    mcp_audience: Annotated[str, Field(alias="mcpAudience")] = ""
    user: Text = "sub"
    rules: Annotated[tuple[OidcRule, ...], Field(min_length=1)]


def read_oidc_config(path: str) -> OidcConfig:
    """Returns the configuration in a YAML file. Raises UsageError."""
    try:
        found = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
        config = OidcConfig.model_validate(found)
    except OSError as error:
        words = (error.strerror or "").lower()
        raise UsageError(f"--oidc `{path}` cannot be read: {words}") from None
    except (yaml.YAMLError, UnicodeDecodeError):
        raise UsageError(f"--oidc `{path}` is no YAML") from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise UsageError(
            f"--oidc `{path}`: {where or 'the file'}: {first['msg'].lower()}",
            hint="it has `issuer`, `audience`, `user` and `rules`",
        ) from None
    _check_address(config.issuer, f"--oidc `{path}`: issuer")
    return config


def _check_address(url: str, where: str) -> None:
    """Raises UsageError for an address over which somebody else could send keys."""
    parts = urlsplit(url)
    safe = parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in LOOPBACK)
    if not safe or not parts.hostname:
        raise UsageError(
            f"{where} is `{url[:200]}`; it must be an https:// address",
            hint="http:// is for an issuer on this machine alone",
        )


class OidcCheck:
    """A check of the tokens of one issuer. One for a server; its methods may run in any thread."""

    def __init__(self, config: OidcConfig, audiences: Sequence[str] = ()) -> None:
        """audiences: a token must be for one of them; empty: for the file's `audience`."""
        self._config = config
        self._audiences = list(audiences) or [config.audience]
        self._lock = threading.Lock()
        self._keys: dict[str, jwt.PyJWK] = {}
        self._fetched_s = self._tried_s = float("-inf")

    def find_caller(self, text: str, address: str) -> Caller:
        """Returns the user of a token. Raises HttpError 401 for a token that does not hold, 403 for
        a user without a role, 503 where the issuer's keys cannot be had."""
        claims = self._read_claims(text)
        user = claims.get(self._config.user)
        if not isinstance(user, str) or not _is_name(user):
            raise HttpError(401, f"the token has no name in its claim `{self._config.user}`")
        for rule in self._config.rules:
            if rule.fits(claims):
                return Caller(user, rule.role, rule.namespace, TOKEN, address)
        raise HttpError(
            403,
            f"no rule of this server gives `{escape_line(user)}` a role",
            hint="the file of `fleetctl serve --oidc` has the rules",
        )

    def _read_claims(self, text: str) -> Claims:
        """Returns the claims of a token whose signature, issuer, audience and times hold. Raises
        HttpError; the reply has no word on what is wrong that could help to forge a token."""
        if len(text) > TOKEN_BYTES_MAX:
            raise _refuse_token()
        try:
            header = jwt.get_unverified_header(text)
            algorithm, key_id = header.get("alg"), header.get("kid", "")
            known = algorithm in ALGORITHMS and isinstance(key_id, str)
            key = self._find_key(key_id) if known else None
            if key is None or algorithm is None:
                raise _refuse_token()
            claims: Claims = jwt.decode(
                text,
                key.key,
                algorithms=[algorithm],
                audience=self._audiences,
                issuer=self._config.issuer,
                leeway=SKEW_S,
                options={"require": list(REQUIRED)},
            )
        except jwt.ExpiredSignatureError:
            raise HttpError(
                401, "this token has expired", hint="get a new one from the issuer"
            ) from None
        except (jwt.PyJWTError, ValueError, TypeError):
            # The last two: a key of another sort than the algorithm's.
            raise _refuse_token() from None
        return claims

    def _find_key(self, key_id: str) -> jwt.PyJWK | None:
        """Returns a key of the issuer; without an id its single key."""
        with self._lock:
            now_s = time.monotonic()
            known = self._choose_key(key_id)
            old = now_s - self._fetched_s > KEYS_S
            if (known is None or old) and now_s - self._tried_s > REFETCH_S:
                self._tried_s = now_s
                self._refresh_keys(now_s)
                known = self._choose_key(key_id)
            if not self._keys:
                raise HttpError(503, "the keys of the issuer cannot be had now", code=1)
            return known

    def _choose_key(self, key_id: str) -> jwt.PyJWK | None:
        if key_id:
            return self._keys.get(key_id)
        return next(iter(self._keys.values())) if len(self._keys) == 1 else None

    def _refresh_keys(self, now_s: float) -> None:
        """Fetches the keys; the old ones stay where the issuer does not answer."""
        try:
            about = _fetch_json(self._config.issuer.rstrip("/") + DISCOVERY)
            if about.get("issuer") != self._config.issuer:
                raise ValueError("another issuer")
            address = str(about.get("jwks_uri"))
            _check_address(address, "jwks_uri")
            listed = _fetch_json(address).get("keys")
            self._keys = _read_keys(listed if isinstance(listed, list) else [])
            self._fetched_s = now_s
        except (OSError, HTTPException, ValueError, UsageError) as error:
            log.warning(
                "keys of the OIDC issuer not fetched",
                extra={"issuer": self._config.issuer, "error": type(error).__name__},
            )


def _read_keys(listed: list[Any]) -> dict[str, jwt.PyJWK]:
    """Returns the public keys for signatures, by id; others are left out."""
    found: dict[str, jwt.PyJWK] = {}
    for it in listed:
        if not isinstance(it, dict) or it.get("kty") not in KEY_SORTS:
            continue
        if it.get("use", "sig") != "sig":
            continue
        try:
            found[str(it.get("kid", ""))] = jwt.PyJWK.from_dict(it)
        except jwt.PyJWTError:
            continue  # of a sort that this version does not know; no token of it is taken
    return found


def _fetch_json(url: str) -> dict[str, Any]:
    request = urllib.request.Request(url, headers={"Accept": "application/json"})  # noqa: S310
    with _OPENER.open(request, timeout=FETCH_WAIT_S) as response:
        found = json.loads(response.read(FETCH_BYTES_MAX))
    if not isinstance(found, dict):
        raise ValueError("no JSON object")
    return found


class _KeyFetcher(urllib.request.HTTPRedirectHandler):
    """A handler that follows no redirect: it could lead to an address without TLS."""

    def redirect_request(self, *_: object) -> None:
        return None


_OPENER = urllib.request.build_opener(_KeyFetcher)


def _is_name(text: str) -> bool:
    return 0 < len(text) <= USER_CHARACTERS_MAX and text.isprintable() and text == text.strip()


def _refuse_token() -> HttpError:
    return HttpError(401, "this token does not hold here", hint="get a new one from the issuer")
