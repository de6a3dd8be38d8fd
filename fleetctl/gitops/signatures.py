"""Checks that a commit has a signature by a key that the Source names. Called by checkout.py before
any file of the commit is there.
"""

from __future__ import annotations

import os
from pathlib import Path

from fleetctl.common.errors import Refused, Unavailable
from fleetctl.providers.programs import run_program
from fleetctl.providers.sources import git
from fleetctl.providers.sources.git_access import GitAccess
from fleetctl.specs.kinds.source import SignatureCheck, SourceRepository
from fleetctl.tracking.kept_by import shorten_commit

IMPORT_S = 30.0


async def verify_signature(
    repository: SourceRepository,
    wanted: SignatureCheck,
    commit: str,
    tree: Path,
    place: Path,
) -> None:
    """Verifies the commit. place: a private directory. Raises Refused where the signature is
    missing, or by another key."""
    keys = place / "gnupg"
    keys.mkdir(mode=0o700)
    # The user's own keyring must not count: git picks the program by the form of the signature.
    access = GitAccess(environment={"GNUPGHOME": str(keys)})
    if wanted.gpg:
        await _import_keys(wanted, keys)
    else:
        signers = place / "allowed_signers"
        signers.write_text("\n".join(wanted.ssh) + "\n", encoding="utf-8")
        access = access.with_options(("gpg.ssh.allowedSignersFile", str(signers)))
    try:
        await git.run(["verify-commit", commit], repository, cwd=tree, access=access)
    except Unavailable as error:
        who = "one of the keys in `verify.gpg`" if wanted.gpg else "a signer in `verify.ssh`"
        raise Refused(
            f"{shorten_commit(commit)} is not signed by {who}",
            hint=f"git log --show-signature {commit}",
        ) from error


async def _import_keys(wanted: SignatureCheck, keys: Path) -> None:
    """Writes the keyring: its keys, one behind the other, which needs no agent beside gpg."""
    ring = b""
    for number, text in enumerate(wanted.gpg):
        armored = keys / f"{number}.asc"
        armored.write_text(text.rstrip("\n") + "\n", encoding="utf-8")
        argv = ["gpg", "--batch", "--no-autostart", "--quiet", "--output", "-"]
        ring += await _run_gpg(
            [*argv, "--dearmor", str(armored)], keys, f"git.verify.gpg[{number}]"
        )
    (keys / "pubring.gpg").write_bytes(ring)


async def _run_gpg(
    argv: list[str],
    keys: Path,
    what: str,
) -> bytes:
    environment = {"GNUPGHOME": str(keys), "PATH": os.environ.get("PATH", ""), "LC_ALL": "C"}
    try:
        answer = await run_program(argv, deadline_s=IMPORT_S, env=environment)
    except FileNotFoundError as error:
        raise Refused("`verify.gpg` needs the program `gpg`", hint="install gnupg") from error
    except TimeoutError as error:
        raise Unavailable("gpg did not answer", reason="SourceUnreachable") from error
    if answer.code or not answer.out:
        raise Refused(
            f"`{what}` is not an armored public key",
            hint="write what `gpg --export --armor KEY` prints",
        )
    return answer.out
