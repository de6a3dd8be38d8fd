"""Tokens of an OpenID Connect issuer at a real server: which hold, and what their users may do."""

from __future__ import annotations

import base64
import hmac
import json
import time
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import jwt
import pytest
import yaml

from fleetctl.common.errors import UsageError
from fleetctl.server.callers import HttpError
from fleetctl.server.oidc import OidcCheck, OidcConfig, read_oidc_config
from tests.api.oidc_issuer import AUDIENCE, OidcIssuer
from tests.api.served import ServedFleet, job

RULES = [
    {"claim": "groups", "value": "ml-admins", "role": "admin", "namespace": "*"},
    {"claim": "groups", "value": "ml", "role": "editor", "namespace": "team"},
    {"claim": "email_verified", "value": True, "role": "viewer", "namespace": "team"},
]


@pytest.fixture(scope="module")
def issuer() -> Iterator[OidcIssuer]:
    made = OidcIssuer()
    yield made
    made.close()


def config_of(issuer: OidcIssuer, more: dict[str, Any] | None = None) -> dict[str, Any]:
    named = {"issuer": issuer.url, "audience": AUDIENCE, "user": "email", "rules": RULES}
    return named | (more or {})


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, issuer: OidcIssuer) -> Iterator[ServedFleet]:
    place = tmp_path_factory.mktemp("oidc")
    (place / "oidc.yaml").write_text(yaml.safe_dump(config_of(issuer)))
    fleet = ServedFleet(place / "home", "--oidc", str(place / "oidc.yaml"))
    yield fleet
    fleet.close()


def whoami(served: ServedFleet, token: str) -> tuple[int, Any]:
    with served.client(token) as client:
        answer = client.get("/api/v1/whoami")
    assert "Traceback" not in answer.text
    return answer.status_code, answer.json()


def test_a_user_has_the_role_of_the_first_rule_that_fits(
    served: ServedFleet, issuer: OidcIssuer
) -> None:
    status, found = whoami(served, issuer.token())
    assert status == 200
    assert (found["user"], found["role"], found["namespace"], found["token"]) == (
        "ana@example.org", "editor", "team", "oidc",
    )  # fmt: skip
    assert whoami(served, issuer.token(groups=["ml", "ml-admins"]))[1]["role"] == "admin"
    assert whoami(served, issuer.token(groups=[], email_verified=True))[1]["role"] == "viewer"
    status, found = whoami(served, issuer.token(groups=["others"], email_verified="true"))
    assert status == 403
    assert "gives `ana@example.org` a role" in found["errors"][0]


def test_what_a_user_does_is_theirs_and_stays_in_their_namespace(
    served: ServedFleet, issuer: OidcIssuer
) -> None:
    made = served.post("apply", {"manifest": job("signed")}, token=issuer.token())
    assert made.status_code == 200, made.text
    beyond = job("beyond", namespace="other")
    refused = served.post("apply", {"manifest": beyond}, token=issuer.token())
    assert refused.status_code in (403, 409)
    read = job("reads", template={"python": "1", "source": {"path": str(served.home)}})
    refused = served.post("apply", {"manifest": read}, token=issuer.token())
    assert refused.status_code == 400
    assert "outside of the repository" in refused.text
    act = served.json("audit", "-A")[-1]
    assert (act["user"], act["token"]) == ("ana@example.org", "oidc")
    assert issuer.token() not in json.dumps(served.json("audit", "-A"))


NOW_S = int(time.time())


@pytest.mark.parametrize(
    "claims",
    [
        {"iss": "http://127.0.0.1:1"},
        {"aud": "another"},
        {"aud": None},
        {"exp": NOW_S - 300},
        {"exp": None},
        {"iat": None},
        {"sub": None},
        {"nbf": NOW_S + 3600},
        {"email": None},
        {"email": "ana\x1b[31m"},
        {"email": ["ana"]},
    ],
    ids=",".join,  # no values: each worker has its own time
)
def test_a_token_whose_claims_do_not_hold_opens_nothing(
    served: ServedFleet, issuer: OidcIssuer, claims: dict[str, Any]
) -> None:
    assert whoami(served, issuer.token(**claims))[0] == 401


def test_clocks_may_differ_by_less_than_a_minute(issuer: OidcIssuer) -> None:
    check = OidcCheck(OidcConfig.model_validate(config_of(issuer)))
    now_s = int(time.time())
    assert check.find_caller(issuer.token(exp=now_s - 20), "").user
    assert check.find_caller(issuer.token(iat=now_s + 20, nbf=now_s + 20), "").user
    with pytest.raises(HttpError):
        check.find_caller(issuer.token(exp=now_s - 90), "")


def encode(part: object) -> str:
    text = part if isinstance(part, bytes) else json.dumps(part).encode()
    return base64.urlsafe_b64encode(text).rstrip(b"=").decode()


def test_a_token_without_a_signature_of_a_key_pair_opens_nothing(issuer: OidcIssuer) -> None:
    """`none`, a MAC with the public key as its secret, and a key that is not the issuer's."""
    check = OidcCheck(OidcConfig.model_validate(config_of(issuer)))
    claims = encode(issuer.claims())
    found = [f"{encode({'alg': 'none', 'kid': 'first'})}.{claims}."]
    for algorithm in ("HS256", "hs256", "HS512"):
        signed = f"{encode({'alg': algorithm, 'kid': 'first', 'typ': 'JWT'})}.{claims}"
        mac = hmac.new(issuer.public_pem("first"), signed.encode(), sha256).digest()
        found.append(f"{signed}.{encode(mac)}")
    other = OidcIssuer()
    found.append(jwt.encode(issuer.claims(), other.private["first"], "RS256", {"kid": "first"}))
    other.close()
    good = issuer.token()
    found += [good[:-8] + "AAAAAAAA", good.rpartition(".")[0] + ".", "..", "a.b.c", "x" * 20_000]
    head, _, signature = good.partition(".")[0], "", good.rpartition(".")[2]
    found.append(f"{head}.{encode(issuer.claims(groups=['ml-admins']))}.{signature}")
    for text in found:
        with pytest.raises(HttpError) as refused:
            check.find_caller(text, "")
        assert refused.value.status == 401, text
    assert check.find_caller(good, "").role == "editor"


def test_keys_of_a_mac_are_no_keys(issuer: OidcIssuer) -> None:
    secret = b"s" * 32
    issuer.keys.append({"kty": "oct", "kid": "mac", "k": encode(secret), "alg": "HS256"})
    check = OidcCheck(OidcConfig.model_validate(config_of(issuer)))
    text = jwt.encode(issuer.claims(), secret, "HS256", {"kid": "mac"})
    with pytest.raises(HttpError):
        check.find_caller(text, "")
    issuer.keys.pop()


def test_a_rotated_key_works_and_unknown_ones_ask_the_issuer_seldom(
    issuer: OidcIssuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [1000.0]
    monkeypatch.setattr("fleetctl.server.oidc.time.monotonic", lambda: clock[0])
    check = OidcCheck(OidcConfig.model_validate(config_of(issuer)))
    asked = issuer.asked
    for _ in range(5):
        check.find_caller(issuer.token(), "")
    assert issuer.asked == asked + 1
    issuer.add_ec("second")
    clock[0] += 20
    assert check.find_caller(issuer.token("second", "ES256"), "").user == "ana@example.org"
    assert issuer.asked == asked + 2
    for at in range(50):
        forged = jwt.encode(issuer.claims(), issuer.private["first"], "RS256", {"kid": f"k{at}"})
        with pytest.raises(HttpError):
            check.find_caller(forged, "")
    assert issuer.asked == asked + 2
    del issuer.keys[-1]
    clock[0] += 4000
    check.find_caller(issuer.token(), "")
    with pytest.raises(HttpError):
        check.find_caller(issuer.token("second", "ES256"), "")


def test_an_issuer_that_is_away_is_no_wrong_token() -> None:
    away = OidcIssuer()
    check = OidcCheck(OidcConfig.model_validate(config_of(away)))
    text = away.token()
    away.close()
    with pytest.raises(HttpError) as refused:
        check.find_caller(text, "")
    assert refused.value.status == 503


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"issuer": "http://login.example.org"}, "must be an https:// address"),
        ({"rules": []}, "rules"),
        ({"rules": [{"role": "owner", "namespace": "*"}]}, "rules.0.role"),
        ({"rules": [{"role": "admin"}]}, "rules.0.namespace"),
        ({"audience": ""}, "audience"),
        ({"algorithms": ["HS256"]}, "algorithms"),
    ],
    ids=str,
)
def test_a_wrong_file_is_refused(
    tmp_path: Path, issuer: OidcIssuer, more: dict[str, Any], words: str
) -> None:
    path = tmp_path / "oidc.yaml"
    path.write_text(yaml.safe_dump(config_of(issuer, more)))
    with pytest.raises(UsageError) as refused:
        read_oidc_config(str(path))
    assert words in str(refused.value)
