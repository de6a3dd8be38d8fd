"""Files of the caller's machine over a server: each that a manifest names arrives, once, whole, and
only where it may."""

from __future__ import annotations

import hashlib
import json
import os
import re
import socket
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fleetctl.cli.team.remote_files import PIECE_BYTES
from fleetctl.providers.sources.revision import FILES_MAX
from fleetctl.providers.sources.upload_store import UNUSED_S, UploadStore, sweep_uploads
from fleetctl.specs.kinds.registry import KINDS
from tests.api.served import ServedFleet, job
from tests.docs.fleet import Fleet


def far_fleet(served: ServedFleet, place: Path, user: str, role: str, *flags: str) -> Fleet:
    more = {
        "FLEETCTL_SERVER": served.url,
        "FLEETCTL_TOKEN": served.token(user, role, *flags),
        "FLEETCTL_NAMESPACE": "team",
        "XDG_CONFIG_HOME": str(place / "config"),
    }
    return Fleet(place / "home", more)


@pytest.fixture(scope="module")
def far(served: ServedFleet, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    fleet = far_fleet(served, tmp_path_factory.mktemp("far"), "ana", "editor", "-n", "team")
    yield fleet
    assert not fleet.home.exists()


def write_job(place: Path, name: str, python: str, **template: object) -> Path:
    manifest = json.loads(job(name, python))
    manifest["spec"]["template"] |= template
    path = place / f"{name}.json"
    path.write_text(json.dumps(manifest))
    return path


def result(far: Fleet, key: str) -> object:
    return json.loads(far.ok("results", key, "-o", "jsonl").splitlines()[0])["result"]


def test_a_source_on_the_callers_disk_is_what_tasks_get(
    served: ServedFleet, far: Fleet, tmp_path: Path
) -> None:
    (tmp_path / "proj" / "lib").mkdir(parents=True)
    (tmp_path / "proj" / "lib" / "words.py").write_text("SAID = 'from afar'\n")
    (tmp_path / "proj" / "run.sh").write_text("#!/bin/sh\necho ran\n")
    (tmp_path / "proj" / "run.sh").chmod(0o755)
    (tmp_path / "proj" / "near").symlink_to("lib/words.py")
    program = (
        "import sys, os, subprocess; sys.path.insert(0, '.')\n"
        "from lib.words import SAID\n"
        "ran = subprocess.run(['./run.sh'], capture_output=True, text=True).stdout.strip()\n"
        "SUBMIT(said=SAID, ran=ran, near=open('near').read().strip())"
    )
    (tmp_path / "proj" / "needs.txt").write_text("# nothing\n")
    image = {"requirements": "needs.txt"}
    file = write_job(tmp_path, "sourced", program, source={"path": "proj"}, image=image)
    far.ok("apply", "-f", str(file), "--wait")
    assert result(far, "job/sourced") == {
        "said": "from afar",
        "ran": "ran",
        "near": "SAID = 'from afar'",
    }


# By the field that names a file: the test that it arrives, or is refused.
FIELDS = {
    "source.path": "test_a_source_on_the_callers_disk_is_what_tasks_get",
    "image.pip": "test_a_package_of_the_callers_disk_is_installed",
    "image.requirements": "test_a_source_on_the_callers_disk_is_what_tasks_get",
    "image.pipIndex.findLinks": "test_what_cannot_be_sent_is_refused_with_its_place",
    "BatchJob tasks.fromFile": "test_a_named_file_that_is_not_there_is_an_error",
    "BatchJob tasks.fromFiles": "test_files_of_tasks_arrive",
    "BatchJob tasks.files": "test_files_of_tasks_arrive",
    "Sweep searchFrom": "test_a_named_file_that_is_not_there_is_an_error",
    "Secret fromFile": "test_a_value_of_a_secrets_file_reaches_the_task_and_no_disk",
}


def test_every_field_that_names_a_file_has_its_test() -> None:
    named = {f"{kind.name} {field}" for kind in KINDS.values() for field in kind.files}
    templates = {"source.path", "image.pip", "image.requirements", "image.pipIndex.findLinks"}
    assert named | templates == FIELDS.keys()
    assert all(test in globals() for test in FIELDS.values())


def test_a_package_of_the_callers_disk_is_installed(far: Fleet, tmp_path: Path) -> None:
    wheel = tmp_path / "dist" / "sentpack-1.0-py3-none-any.whl"
    wheel.parent.mkdir()
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("sentpack.py", "SAID = 'by a wheel'\n")
        info = "sentpack-1.0.dist-info"
        archive.writestr(
            f"{info}/METADATA", "Metadata-Version: 2.1\nName: sentpack\nVersion: 1.0\n"
        )
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")
    program = "import sentpack; SUBMIT(said=sentpack.SAID)"
    image = {"pip": [f"./dist/{wheel.name}"]}
    far.ok("apply", "-f", str(write_job(tmp_path, "packed", program, image=image)), "--wait")
    assert result(far, "job/packed") == {"said": "by a wheel"}
    (listed,) = far.json("get", "job/packed")["spec"]["template"]["image"]["pip"]
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    assert listed.endswith(f"/{wheel.name}#sha256={digest}")
    assert str(tmp_path) not in listed


def test_files_of_tasks_arrive(far: Fleet, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    for name in ("a", "b"):
        (tmp_path / "data" / f"{name}.txt").write_text(f"held {name}")
    manifest = json.loads(
        job("rows", "import os; SUBMIT(held=open(os.environ['TASK_FILE']).read())")
    )
    manifest["spec"]["tasks"] = {"fromFiles": "data/*.txt"}
    (tmp_path / "rows.json").write_text(json.dumps(manifest))
    far.ok("apply", "-f", str(tmp_path / "rows.json"), "--wait")
    found = [
        json.loads(it)["result"] for it in far.ok("results", "job/rows", "-o", "jsonl").splitlines()
    ]
    assert found == [{"held": "held a"}, {"held": "held b"}]


def test_a_value_of_a_secrets_file_reaches_the_task_and_no_disk(
    served: ServedFleet, far: Fleet, tmp_path: Path
) -> None:
    canary = "canary-7f3a-of-a-file"
    (tmp_path / "token.txt").write_text(f"{canary}\n")
    secret = {
        "kind": "Secret",
        "metadata": {"name": "filed"},
        "spec": {"fromFile": {"FILED": "token.txt"}},
    }
    work = json.loads(job("secretive", "import os; SUBMIT(size=len(os.environ['FILED']))"))
    work["spec"]["template"]["secrets"] = ["filed"]
    file = tmp_path / "both.yaml"
    secret["apiVersion"] = work["apiVersion"]
    file.write_text(json.dumps(secret) + "\n---\n" + json.dumps(work))
    far.ok("apply", "-f", str(file), "--wait")
    assert result(far, "job/secretive") == {"size": len(canary)}
    assert canary not in served.server_log()
    for path in served.home.rglob("*"):
        # The file with the environment of a run is the supervisor's, and goes with the run.
        if path.is_file():
            assert canary.encode() not in path.read_bytes(), path


def test_a_named_file_that_is_not_there_is_an_error(
    served: ServedFleet, far: Fleet, tmp_path: Path
) -> None:
    manifest = json.loads(job("norows"))
    manifest["spec"]["tasks"] = {"fromFile": "missing.csv"}
    sweep = {
        "apiVersion": manifest["apiVersion"],
        "kind": "Sweep",
        "metadata": {"name": "nosearch"},
    }
    sweep["spec"] = {"searchFrom": {"file": "missing.yaml"}, "template": {"python": "SUBMIT(x=1)"}}
    for one in (manifest, sweep):
        file = tmp_path / "wrong.json"
        file.write_text(json.dumps(one))
        here, there = far.run("apply", "-f", str(file)), served.run("apply", "-f", str(file))
        assert (here.code, here.talk) == (there.code, there.talk)
        assert here.code == 2
        assert "missing." in here.talk


def test_what_cannot_be_sent_is_refused_with_its_place(far: Fleet, tmp_path: Path) -> None:
    image = {"pip": ["numpy"], "pipIndex": {"findLinks": [str(tmp_path)]}}
    refused = far.run("apply", "-f", str(write_job(tmp_path, "linked", "SUBMIT(x=1)", image=image)))
    assert refused.code == 2
    assert "spec.template.image.pipIndex.findLinks[0] is" in refused.talk
    assert "name the packages of it" in refused.talk
    many = tmp_path / "many"
    many.mkdir()
    for number in range(FILES_MAX + 1):
        (many / str(number)).touch()
    file = write_job(tmp_path, "large", "SUBMIT(x=1)", source={"path": "many"})
    refused = far.run("apply", "-f", str(file))
    assert refused.code == 2
    assert "spec.template.source.path: " in refused.talk
    assert "leave out by `exclude`" in refused.talk
    gone = far.run(
        "apply", "-f", str(write_job(tmp_path, "gone", "SUBMIT(x=1)", source={"path": "no"}))
    )
    assert gone.code == 2
    assert "there is no such directory" in gone.talk


def test_a_schedule_has_its_source_and_values_go_along(
    served: ServedFleet, far: Fleet, tmp_path: Path
) -> None:
    (tmp_path / "proj").mkdir()
    (tmp_path / "proj" / "said.txt").write_text("scheduled")
    made = json.loads(job("inner", "SUBMIT(said=open('said.txt').read())"))["spec"]
    made["template"]["source"] = {"path": "${{ where }}"}
    schedule = {
        "apiVersion": "fleetctl.dev/v1alpha1",
        "kind": "Schedule",
        "metadata": {"name": "sourced"},
        "spec": {"schedule": "0 3 1 1 *", "template": {"kind": "BatchJob", "spec": made}},
    }
    names = {
        "apiVersion": schedule["apiVersion"],
        "kind": "Variables",
        "variables": {"where": {"type": "string"}},
    }
    file, values = tmp_path / "schedule.yaml", tmp_path / "values.yaml"
    file.write_text(json.dumps(names) + "\n---\n" + json.dumps(schedule))
    values.write_text("where: proj\n")
    far.ok("apply", "-f", str(file), "--values", str(values))
    key = far.ok("create", "job", "--from", "schedule/sourced").removesuffix(" created\n")
    far.ok("wait", key.partition(" ")[0], "--for", "complete", "--timeout", "4m")
    assert result(far, key.partition(" ")[0]) == {"said": "scheduled"}


def test_a_plan_and_a_diff_read_the_source(far: Fleet, tmp_path: Path) -> None:
    (tmp_path / "proj").mkdir()
    (tmp_path / "proj" / "a.txt").write_text("one")
    file = write_job(tmp_path, "planned", "SUBMIT(x=1)", source={"path": "proj"})
    far.ok("apply", "-f", str(file), "--wait")
    assert far.run("diff", "-f", str(file)).code == 0
    (tmp_path / "proj" / "a.txt").write_text("two")
    changed = far.run("diff", "-f", str(file))
    assert changed.code == 1
    assert "a.txt" in changed.out


def test_what_the_server_has_is_not_sent_again(
    served: ServedFleet, far: Fleet, tmp_path: Path
) -> None:
    data = os.urandom(3 * PIECE_BYTES)
    digest = hashlib.sha256(data).hexdigest()
    token = served.token("sender", "editor", "-n", "team")
    half = len(data) // 2

    def lacking() -> dict[str, int]:
        answer = served.post("uploads/missing", {"contents": {digest: len(data)}}, token=token)
        found: dict[str, int] = answer.json()["missing"]
        return found

    def send(offset: int, piece: bytes) -> Any:
        with served.client(token) as client:
            head = f"{digest} {len(data)} {offset} {len(piece)}\n".encode()
            return client.post(
                "/api/v1/uploads/contents",
                content=head + piece,
                headers={"content-type": "application/octet-stream"},
            ).json()

    assert lacking() == {digest: 0}
    assert send(0, data[:half])["have"] == {digest: half}
    assert lacking() == {digest: half}
    assert send(0, data[:half])["have"] == {digest: half}  # the same piece twice
    assert send(half, data[half:])["have"] == {digest: len(data)}
    assert lacking() == {}
    wrong = send(0, data[:half])
    assert wrong["have"] == {digest: len(data)}
    other = hashlib.sha256(b"other").hexdigest()
    with served.client(token) as client:
        lied = client.post(
            "/api/v1/uploads/contents",
            content=f"{other} 4 0 4\nfake".encode(),
            headers={"content-type": "application/octet-stream"},
        )
    assert lied.json()["code"] == 5
    assert served.post("uploads/missing", {"contents": {other: 4}}, token=token).json()[
        "missing"
    ] == {other: 0}


class CutLine:
    """A relay to the server that ends its first connection with a large body in the middle."""

    def __init__(self, port: int, cut_bytes: int) -> None:
        self.sent = 0
        self.cuts = 0
        self._port, self._cut_bytes = port, cut_bytes
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                ours, _ = self._listener.accept()
            except OSError:
                return
            theirs = socket.create_connection(("127.0.0.1", self._port))
            threading.Thread(target=self._up, args=(ours, theirs), daemon=True).start()
            threading.Thread(target=self._down, args=(theirs, ours), daemon=True).start()

    def _up(self, ours: socket.socket, theirs: socket.socket) -> None:
        here = 0
        try:
            while data := ours.recv(65536):
                here += len(data)
                self.sent += len(data)
                if here > self._cut_bytes and not self.cuts:
                    self.cuts += 1
                    ours.close()
                    break
                theirs.sendall(data)
            theirs.shutdown(socket.SHUT_WR)
        except OSError:
            theirs.close()

    def _down(self, theirs: socket.socket, ours: socket.socket) -> None:
        try:
            while data := theirs.recv(65536):
                ours.sendall(data)
            ours.shutdown(socket.SHUT_WR)
        except OSError:
            ours.close()

    def close(self) -> None:
        self._listener.close()


def test_a_cut_line_costs_one_piece(served: ServedFleet, tmp_path: Path) -> None:
    size = 5 * PIECE_BYTES
    (tmp_path / "proj").mkdir()
    (tmp_path / "proj" / "large.bin").write_bytes(os.urandom(size))
    line = CutLine(int(served.url.rpartition(":")[2]), 3 * PIECE_BYTES)
    fleet = far_fleet(served, tmp_path, "cut", "editor", "-n", "team")
    fleet.env["FLEETCTL_SERVER"] = f"http://127.0.0.1:{line.port}"
    program = "import os; SUBMIT(size=os.path.getsize('large.bin'))"
    file = write_job(tmp_path, "cut", program, source={"path": "proj"})
    fleet.ok("apply", "-f", str(file), "--wait")
    line.close()
    assert result(fleet, "job/cut") == {"size": size}
    assert line.cuts == 1
    assert size < line.sent < size + 2 * PIECE_BYTES


def test_a_viewer_sends_nothing_and_nobody_names_what_another_namespace_sent(
    served: ServedFleet, far: Fleet, tmp_path: Path
) -> None:
    (tmp_path / "proj").mkdir()
    (tmp_path / "proj" / "a.txt").write_text("of the team")
    file = write_job(tmp_path, "ours", "SUBMIT(x=1)", source={"path": "proj"})
    viewer = far_fleet(served, tmp_path, "vera", "viewer", "-n", "team")
    refused = viewer.run("plan", "-o", "json", "-f", str(file))
    assert refused.code == 3
    assert "this needs the role `editor`" in refused.talk
    far.ok("apply", "-f", str(file), "--wait")
    (tree,) = [
        it.name
        for it in (served.home / "uploads" / "team" / "trees").iterdir()
        if (it / "proj" / "a.txt").is_file()
        and (it / "proj" / "a.txt").read_text() == "of the team"
    ]
    stat = (served.home / "uploads").stat()
    assert stat.st_mode & 0o077 == 0
    manifest = json.loads(job("theirs", namespace="other"))
    manifest["spec"]["template"]["source"] = {"path": "proj"}
    document = {"path": "a.json", "text": json.dumps(manifest), "sent": {"proj": f"{tree}/proj"}}
    other = served.token("otto", "editor", "-n", "other")
    answer = served.post("apply", {"documents": [document]}, token=other)
    assert answer.status_code == 404
    assert "not on the server any more" in answer.json()["errors"][0]
    acts = served.json("audit", "--user", "ana", "-A")
    assert "upload" in {row["action"] for row in acts}
    (counted,) = [
        it
        for it in json.loads(served.ok("gc", "--dry-run", "-o", "json"))
        if it["sort"] == "sources"
    ]
    assert counted["bytes"] > 0 and counted["items"] >= 1


@pytest.mark.parametrize(
    "tree",
    [
        {"files": [["../../x", False, "of"]]},
        {"files": [["/etc/x", False, "of"]]},
        {"files": [["a//x", False, "of"]]},
        {"files": [["a\0x", False, "of"]]},
        {"files": [["a/x", False, "../../../state.db"]]},
        {"files": [["a/x", False, "of"]], "links": [["a/out", "../../../../state.db"]]},
        {"files": [["a/x", False, "of"]], "links": [["a/out", "/etc/passwd"]]},
        {"files": [["a/x", False, "of"], ["a/x", False, "of"]]},
        {"files": [["a/x/y", False, "of"], ["a/x", False, "of"]]},
        {"files": [["a/x", False, "of"]], "links": [["a/b", "."], ["a/b/c", "../../x"]]},
        {"files": "no"},
    ],
    ids=str,
)
def test_a_directory_that_leaves_its_place_is_refused(
    served: ServedFleet, tree: dict[str, Any]
) -> None:
    token = served.token("mallory", "editor", "-n", "evil")
    data = b"of evil"
    digest = hashlib.sha256(data).hexdigest()
    with served.client(token) as client:
        client.post(
            "/api/v1/uploads/contents",
            content=f"{digest} {len(data)} 0 {len(data)}\n".encode() + data,
            headers={"content-type": "application/octet-stream"},
        )
    sent = json.loads(re.sub('"of"', f'"{digest}"', json.dumps(tree)))
    answer = served.post("uploads/tree", sent, token=token)
    assert answer.status_code == 400, answer.text
    trees = served.home / "uploads" / "evil" / "trees"
    assert not trees.exists() or not list(trees.iterdir())


@pytest.mark.parametrize(
    "body",
    [b"no line", b"abc 1 0 1\nx", b"%s 5 0 5\nx", b"%s 1 0 2\nxx", b"%s 999999999999 0 1\nx"],
)
def test_a_body_that_is_no_pieces_is_refused(served: ServedFleet, body: bytes) -> None:
    token = served.token("mallory", "editor", "-n", "evil")
    data = body.replace(b"%s", hashlib.sha256(b"x").hexdigest().encode())
    with served.client(token) as client:
        answer = client.post(
            "/api/v1/uploads/contents",
            content=data,
            headers={"content-type": "application/octet-stream"},
        )
    assert answer.status_code == 400, answer.text


def test_a_digest_in_a_schedule_gives_no_content_of_others(
    served: ServedFleet, far: Fleet, tmp_path: Path
) -> None:
    data = b"a content that the team alone may read"
    digest = hashlib.sha256(data).hexdigest()
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.txt").write_bytes(data)
    manifest = json.loads(job("private", "SUBMIT(x=1)"))
    manifest["spec"]["tasks"] = {"fromFiles": "data/*.txt"}
    (tmp_path / "private.json").write_text(json.dumps(manifest))
    far.ok("apply", "-f", str(tmp_path / "private.json"), "--wait")
    made = json.loads(job("inner", "SUBMIT(x=1)"))["spec"]
    found = [{"path": "a.txt", "sha256": digest, "bytes": len(data)}]
    made["tasks"] = {"files": {"base": "data", "found": found}}
    schedule = {
        "apiVersion": "fleetctl.dev/v1alpha1",
        "kind": "Schedule",
        "metadata": {"name": "thief", "namespace": "other"},
        "spec": {"schedule": "0 3 1 1 *", "template": {"kind": "BatchJob", "spec": made}},
    }
    other = served.token("otto", "editor", "-n", "other")
    answer = served.post("apply", {"manifest": json.dumps(schedule)}, token=other)
    assert answer.status_code == 400, answer.text
    assert "spec.template.spec.tasks.files names a file" in answer.json()["errors"][0]


def test_files_that_nobody_used_for_a_week_go_but_packages_of_objects_stay(
    tmp_path: Path,
) -> None:
    store = UploadStore(tmp_path, "team")
    kept, old, new = (hashlib.sha256(it).hexdigest() for it in (b"kept", b"old", b"new"))
    for digest, data in ((kept, b"kept"), (old, b"old"), (new, b"new")):
        store.append(digest, len(data), 0, data)
    store.append(hashlib.sha256(b"part").hexdigest(), 9, 0, b"part")
    before_s = 1.0
    for path in store.place.rglob("*"):
        if path.is_file():
            os.utime(path, (before_s, before_s))
    os.utime(store.path_of(new))
    sweep_uploads(tmp_path, [f'{{"pip": ["{store.path_of(kept)}#sha256={kept}"]}}'])
    left = {path.name for path in store.place.rglob("*") if path.is_file()}
    assert left == {kept, new}
    assert UNUSED_S > 86400
