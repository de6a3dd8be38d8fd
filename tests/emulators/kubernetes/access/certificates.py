"""TLS on loopback: an authority of its own, and kubeconfigs that trust it."""

from __future__ import annotations

import base64
import json
import os
import ssl
from pathlib import Path
from typing import Any


def server_context(directory: Path) -> tuple[ssl.SSLContext, bytes]:
    """(context of the server, certificate of its authority in PEM)."""
    import trustme

    authority = trustme.CA()
    # What pods and people call it by.
    certificate = authority.issue_cert(
        "127.0.0.1",
        "localhost",
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "kubernetes.default.svc.cluster.local",
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure_cert(context)
    pem = authority.cert_pem.bytes()
    (directory / "ca.crt").write_bytes(pem)
    return context, pem


def kubeconfig(server: str, authority: bytes, token: str, *, user: str, namespace: str) -> Any:
    name = "fleetctl-emulator"
    cluster = {
        "server": server,
        "certificate-authority-data": base64.b64encode(authority).decode(),
    }
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": cluster}],
        "users": [{"name": user, "user": {"token": token}}],
        "contexts": [
            {"name": name, "context": {"cluster": name, "user": user, "namespace": namespace}}
        ],
        "current-context": name,
    }


def write_kubeconfig(path: Path, config: Any) -> None:
    """YAML, of which JSON is a part; for its owner alone."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "w") as file:
        json.dump(config, file, indent=1)
