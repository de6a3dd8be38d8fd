"""`skills`: the folder from which coding agents learn fleetctl is whole and of this version."""

from __future__ import annotations

import io
import json
import re
from hashlib import sha256
from pathlib import Path

import yaml

from fleetctl.cli.learn.init import list_examples
from fleetctl.cli.main import run_guarded
from fleetctl.cli.output.screen import Screen
from fleetctl.common.version import VERSION
from fleetctl.controllers.reasons import REASONS
from fleetctl.specs.kinds.registry import KINDS
from tests.docs.fleet import ROOT

LINES_MAX = 40


def fleetctl(*words: str) -> tuple[int, str, str]:
    out, talk = io.StringIO(), io.StringIO()
    code = run_guarded(list(words), Screen(out, talk))
    return code, out.getvalue(), talk.getvalue()


def install(directory: Path) -> Path:
    code, out, talk = fleetctl("skills", "install", str(directory))
    assert (code, talk) == (0, "")
    assert VERSION in out
    return directory / "fleetctl"


def test_a_skill_has_its_name_its_version_and_all_that_it_names(tmp_path: Path) -> None:
    folder = install(tmp_path)
    _, front, text = (folder / "SKILL.md").read_text().split("---\n", 2)
    head = yaml.safe_load(front)
    assert head["name"] == folder.name
    assert head["metadata"] == {"version": VERSION}
    assert 0 < len(head["description"]) <= 1024
    named = set(re.findall(r"`(references/[\w/.-]+)`", text)) - {"references/KIND.md"}
    named = {it for it in named if not it.endswith("/")}
    assert [it for it in sorted(named) if not (folder / it).exists()] == []
    assert {f"references/{it.lower()}.md" for it in KINDS} < named
    assert {f"references/examples/{it}.yaml" for it in list_examples()} < named
    assert not re.findall(r"{(?:version|kinds|examples)}", text)


def test_references_have_each_field_and_each_reason(tmp_path: Path) -> None:
    folder = install(tmp_path)
    for kind in KINDS:
        _, out, _ = fleetctl("explain", kind, "--recursive")
        page = (folder / "references" / f"{kind.lower()}.md").read_text()
        assert [it for it in out.splitlines() if it.strip() and it.rstrip() not in page] == []
    reasons = (folder / "references" / "reasons.md").read_text()
    assert [it for it in REASONS if f"- `{it}`: " not in reasons] == []


def test_the_examples_of_a_skill_are_valid_where_they_are(tmp_path: Path) -> None:
    from fleetctl.manifest import load_manifests, read_documents

    examples = install(tmp_path) / "references" / "examples"
    for name in list_examples():
        assert load_manifests(read_documents([str(examples / f"{name}.yaml")])), name


def test_an_update_replaces_old_files_and_spares_edited_ones(tmp_path: Path) -> None:
    folder = install(tmp_path)
    record = folder / ".written.json"
    new = (folder / "SKILL.md").read_bytes()
    assert fleetctl("skills", "install", str(tmp_path))[0] == 3
    # As an older version would have written them.
    old = b"of an older version"
    (folder / "SKILL.md").write_bytes(old)
    (folder / "references" / "gone.md").write_bytes(old)
    digest = sha256(old).hexdigest()
    written = yaml.safe_load(record.read_text())
    written["version"] = "0.0.1"
    written["files"] |= {"SKILL.md": digest, "references/gone.md": digest}
    record.write_text(json.dumps(written))
    code, out, _ = fleetctl("skills", "update", str(tmp_path))
    assert code == 0
    assert "before 0.0.1" in out
    assert (folder / "SKILL.md").read_bytes() == new
    assert not (folder / "references" / "gone.md").exists()

    (folder / "references" / "sweep.md").write_text("mine")
    code, _, talk = fleetctl("skills", "update", str(tmp_path))
    assert code == 3
    assert "references/sweep.md" in talk
    assert (folder / "references" / "sweep.md").read_text() == "mine"


def test_without_a_skill_or_with_a_broken_record_nothing_is_updated(tmp_path: Path) -> None:
    code, _, talk = fleetctl("skills", "update", str(tmp_path))
    assert code == 4
    assert "skills install" in talk
    folder = install(tmp_path)
    for text in ("{", "[]", '{"version": "1", "files": {"../out": "0"}}'):
        (folder / ".written.json").write_text(text)
        assert fleetctl("skills", "update", str(tmp_path))[0] == 2, text


def test_agents_md_is_short_and_names_what_there_is() -> None:
    text = (ROOT / "AGENTS.md").read_text()
    assert len(text.splitlines()) <= LINES_MAX
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"`make ([\w-]+)`", text):
        assert f"\n{target}:" in makefile
    for path in re.findall(r"\]\(([\w/.-]+)\)|(?<=-q )(tests/[\w/.]+)", text):
        assert all((ROOT / it).exists() for it in path if it), path
    for layer in ("agents", "server", "daemon", "apply", "engine", "views"):
        assert (ROOT / "fleetctl" / layer).is_dir()
        assert f"`{layer}`" in text
