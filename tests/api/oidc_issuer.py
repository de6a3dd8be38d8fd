"""An OpenID Connect issuer on the loopback address: its document, its keys, and tokens that it
signs, also for a client that asks for one for a resource (RFC 8707). Its keys can be changed while
it runs."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

AUDIENCE = "fleetctl"
DOCUMENTS = ("/.well-known/openid-configuration", "/.well-known/oauth-authorization-server")


class OidcIssuer:
    """An issuer. `keys`: as JWKS has them; `asked`: how often it was asked for its keys."""

    def __init__(self) -> None:
        self.keys: list[dict[str, Any]] = []
        self.asked = 0
        self.grants: list[dict[str, str]] = []  # that clients asked for
        self.private: dict[str, Any] = {}
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = issuer.answer(self.path)
                self.send_response(200 if body else 404)
                self.end_headers()
                self.wfile.write(json.dumps(body).encode())

            def do_POST(self) -> None:
                form = parse_qs(self.rfile.read(int(self.headers["content-length"])).decode())
                issuer.grants.append({name: values[0] for name, values in form.items()})
                token = issuer.token(aud=form["resource"][0])
                body = {"access_token": token, "token_type": "Bearer", "expires_in": 3600}
                self.send_response(200)
                self.send_header("content-type", "application/json")
                self.end_headers()
                self.wfile.write(json.dumps(body).encode())

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()
        self.add_rsa("first")

    def answer(self, path: str) -> Mapping[str, Any]:
        if path in DOCUMENTS:
            return {
                "issuer": self.url,
                "jwks_uri": f"{self.url}/keys",
                "authorization_endpoint": f"{self.url}/authorize",
                "token_endpoint": f"{self.url}/token",
            }
        if path == "/keys":
            self.asked += 1
            return {"keys": self.keys}
        return {}

    def add_rsa(self, name: str) -> None:
        self.private[name] = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        found = jwt.algorithms.RSAAlgorithm.to_jwk(self.private[name].public_key(), as_dict=True)
        self.keys.append({**found, "kid": name, "use": "sig"})

    def add_ec(self, name: str) -> None:
        self.private[name] = ec.generate_private_key(ec.SECP256R1())
        found = jwt.algorithms.ECAlgorithm.to_jwk(self.private[name].public_key(), as_dict=True)
        self.keys.append({**found, "kid": name})

    def public_pem(self, name: str) -> bytes:
        return (
            self.private[name]
            .public_key()
            .public_bytes(
                serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
            )
        )

    def claims(self, **more: Any) -> dict[str, Any]:
        now_s = int(time.time())
        return {
            "iss": self.url,
            "aud": AUDIENCE,
            "sub": "u-1",
            "email": "ana@example.org",
            "groups": ["ml"],
            "iat": now_s,
            "exp": now_s + 3600,
            **more,
        }

    def token(self, key: str = "first", algorithm: str = "RS256", **more: Any) -> str:
        claims = {name: it for name, it in self.claims(**more).items() if it is not None}
        return jwt.encode(claims, self.private[key], algorithm, headers={"kid": key})

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
