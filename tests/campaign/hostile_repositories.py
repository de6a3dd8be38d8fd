"""Repositories of a Source that mean ill: trees that no honest git writes, links and paths that
lead out, filters, submodules, manifests that name files of this machine. Each commit is read as the
controller reads it: by git, then by a process over the checkout.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from random import Random

from fleetctl.common.clock import SystemClock
from fleetctl.common.errors import FleetctlError
from fleetctl.gitops import checkout
from fleetctl.gitops.proposal import SourceClaim
from fleetctl.specs.kinds.source import SourceRepository
from fleetctl.stores.sqlite.store import open_store
from tests.campaign.mutating import mutated

CANARY = "CANARY-of-this-machine"
READ_S = 300.0
FILE, PROGRAM, LINK, TREE, MODULE = b"100644", b"100755", b"120000", b"40000", b"160000"
NAMES = (
    b"a", b"a.yaml", b"b.yml", b"dir", b".git", b".GIT", b"git~1", b".git ", b".gi\xe2\x80\x8ct",
    b"..", b".", b"a\\b", b"\xff\xfe", b"\x1b[2J.yaml", b"\xe2\x80\xaeb.yaml", b"-rf", b"con",
    b"x" * 255, b"x" * 300, b".gitmodules", b".gitattributes", b"hooks", b".fleetctlignore",
)  # fmt: skip
ATTRIBUTES = b"* filter=evil diff=evil merge=evil text eol=crlf working-tree-encoding=UTF-16\n"
JOB = """\
apiVersion: fleetctl.dev/v1alpha1
kind: BatchJob
metadata: {{name: x}}
spec: {{tasks: {{items: [{{a: 1}}]}}, template: {{script: "true", {template}}}}}
"""
REACHING = (
    "source: {path: %s}",
    "requirementsFile: %s",
    "image: {requirements: %s}",
    "image: {pip: ['-r %s']}",
    "image: {pip: ['-e %s']}",
    "image: {dockerfile: %s}",
    "source: {path: ., include: ['%s']}",
)
ROWS = "spec: {tasks: {fromFile: {path: %s}}, template: {script: 'true'}}"
SECRET = """\
apiVersion: fleetctl.dev/v1alpha1
kind: Secret
metadata: {name: s}
spec: {keys: [{name: K, fromFile: %s}]}
"""


def attack_by_repository(place: Path, dice: Random) -> str:
    canary = place.parent / "canary"
    made = not canary.exists()
    canary.write_text(f"{CANARY}: 1\n")
    try:
        return _attack(place, canary, dice)
    finally:
        if made:
            canary.unlink()


def _attack(place: Path, canary: Path, dice: Random) -> str:
    origin, home = place / "origin", place / "home"
    commit = _commit(origin, canary, dice)
    open_store(home, SystemClock()).close()
    repository = SourceRepository.model_construct(
        url=f"file://{origin}", ref=None, path=".", depth=1, verify=None, known_hosts=None,
        lfs=False, submodules=dice.random() < 0.5, secret=None,
    )  # fmt: skip
    try:
        tree = asyncio.run(checkout.check_out(repository, commit, {}, place / "checkout"))
    except FleetctlError:
        return ""
    except Exception as error:
        return f"the checkout: {type(error).__name__} came out: {error!a}"
    claim = SourceClaim(key="source/s", set="s", commit=commit)
    request = place / "request"
    request.write_text(json.dumps({"home": str(home), "claim": asdict(claim)}))
    done = subprocess.run(
        [sys.executable, "-m", "fleetctl.gitops.child", str(request)],
        cwd=tree, capture_output=True, text=True, errors="replace", timeout=READ_S, check=False,
        env={**os.environ, "FLEETCTL_HOME": str(home), "PYTHONSAFEPATH": "1"},
    )  # fmt: skip
    return _judge(done, place, home)


def _judge(done: subprocess.CompletedProcess[str], place: Path, home: Path) -> str:
    if done.returncode or "Traceback" in done.stderr:
        return f"the reading ended with {done.returncode}: {done.stderr[-600:]}"
    if CANARY in done.stdout + done.stderr:
        return "the reading has a text of this machine"
    if (place / "evil").exists():
        return "something of the repository ran"
    for path in home.rglob("*"):
        if path.is_file() and not path.is_symlink() and CANARY.encode() in path.read_bytes():
            return f"{path} has a text of this machine"
    json.loads(done.stdout)
    return ""


def _commit(origin: Path, canary: Path, dice: Random) -> str:
    subprocess.run(["git", "init", "--quiet", "--bare", str(origin)], check=True)
    git = Git(origin)
    rows = {b"good.yaml": (FILE, git.put(b"blob", JOB.format(template="").encode()))}
    for _ in range(dice.randint(1, 5)):
        rows[dice.choice(NAMES)] = _entry(git, canary, dice)
    if dice.random() < 0.4:
        rows[b"evil.yaml"] = (FILE, git.put(b"blob", _reaching(canary, dice)))
    if dice.random() < 0.2:
        rows[b"mutated.yaml"] = (FILE, git.put(b"blob", mutated(dice)))
    if dice.random() < 0.2:
        rows[b".gitattributes"] = (FILE, git.put(b"blob", ATTRIBUTES))
    if dice.random() < 0.3:
        rows[b".gitmodules"] = (FILE, git.put(b"blob", _modules(canary, origin, dice)))
        rows[b"dir"] = (MODULE, dice.choice(("0" * 39 + "1", git.put(b"blob", b"x"))))
    tree = git.tree(rows)
    who = b"a <a@b> 1 +0000"
    text = b"tree %s\nauthor %s\ncommitter %s\n\n\x1b[2Jx\n" % (tree.encode(), who, who)
    commit = git.put(b"commit", text)
    subprocess.run(["git", "-C", str(origin), "update-ref", "refs/heads/main", commit], check=True)
    subprocess.run(
        ["git", "-C", str(origin), "symbolic-ref", "HEAD", "refs/heads/main"], check=True
    )
    return commit


class Git:
    """Writes objects as they are given, also objects that git itself would not write."""

    def __init__(self, origin: Path) -> None:
        self._origin = origin

    def put(self, sort: bytes, data: bytes) -> str:
        words = ["hash-object", "-t", sort.decode(), "-w", "--literally", "--stdin"]
        done = subprocess.run(
            ["git", "-C", str(self._origin), *words], input=data, capture_output=True, check=True
        )
        return done.stdout.decode().strip()

    def tree(self, rows: dict[bytes, tuple[bytes, str]]) -> str:
        data = b"".join(
            mode + b" " + name + b"\0" + bytes.fromhex(digest)
            for name, (mode, digest) in sorted(rows.items())
        )
        return self.put(b"tree", data)


def _entry(git: Git, canary: Path, dice: Random) -> tuple[bytes, str]:
    outside = _outside(canary, dice).encode()
    match dice.choice(("file", "program", "link", "link", "tree")):
        case "file":
            return FILE, git.put(b"blob", dice.choice((b"", b"x", b"\0" * 100, outside)))
        case "program":
            return PROGRAM, git.put(b"blob", b"#!/bin/sh\ntouch ../../evil\n")
        case "link":
            return LINK, git.put(b"blob", outside)
        case _:
            inner = {dice.choice(NAMES): (LINK, git.put(b"blob", outside))}
            inner[b"post-checkout"] = (PROGRAM, git.put(b"blob", b"#!/bin/sh\ntouch ../../evil\n"))
            return TREE, git.tree(inner)


def _outside(canary: Path, dice: Random) -> str:
    return dice.choice(
        (str(canary), str(canary.parent), "../../../canary", "/etc/passwd", "/proc/self/environ",
         "/", "..", ".", "/dev/zero", "a", "dir", ".git/config", "a" * 300)
    )  # fmt: skip


def _reaching(canary: Path, dice: Random) -> bytes:
    """Returns a manifest that names a file outside of its repository, or a link to one."""
    path = json.dumps(dice.choice((_outside(canary, dice), "a", "dir/a", "dir")))
    sort = dice.randrange(3)
    if sort == 0:
        return (SECRET % path).encode()
    if sort == 1:
        return (
            JOB.partition("spec:")[0].replace("{{", "{").replace("}}", "}") + ROWS % path
        ).encode()
    field = dice.choice(REACHING) % path
    return JOB.format(template=field).encode()


def _modules(canary: Path, origin: Path, dice: Random) -> bytes:
    url = dice.choice(
        (f"file://{origin}", f"file://{canary.parent}", "ext::sh -c touch% evil", "-u evil", "../x")
    )
    path = dice.choice(("dir", "../dir", "/tmp/dir", "-x", "dir/.git"))
    update = dice.choice(("", "\tupdate = !touch ../../evil\n"))
    name = dice.choice(("dir", "../../x", "-x"))
    return f'[submodule "{name}"]\n\tpath = {path}\n\turl = {url}\n{update}'.encode()
