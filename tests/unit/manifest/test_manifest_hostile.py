"""Manifests made to hurt: each is refused in words, and in a process with little memory."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fleetctl.manifest import Document, ManifestErrors, load_manifests
from fleetctl.manifest.yaml import reader as reader_module
from fleetctl.manifest.yaml.reader import NODES_MAX

MEMORY_MAX_BYTES = 200 * 1024 * 1024  # what the issue allows for refusing
# Twenty times the second that a refusal may take on an idle machine: a net under loops without end.
CPU_MAX_S = 20
ANSWER_CHARS_MAX = 60_000

Reader = subprocess.Popen[str]

HEAD = "apiVersion: fleetctl.dev/v1alpha1\nkind: BatchJob\nmetadata: {name: x}\n"
VARIABLES = "apiVersion: fleetctl.dev/v1alpha1\nkind: Variables\nvariables:\n  "
# Reads paths, and tries each in a fork: the imports are paid once, and a fork's peak is its own.
PROGRAM = """
import json, os, resource, sys
from fleetctl.manifest import ManifestErrors, load_manifests, read_documents

def tried(path):
    try:
        load_manifests(read_documents([path]))
        return "accepted"
    except ManifestErrors as errors:
        return str(errors)

def peak():
    lines = open("/proc/self/status")
    return 1024 * next(int(line.split()[1]) for line in lines if line[:6] == "VmHWM:")

tried("/no/such.yaml")
for line in sys.stdin:
    child = os.fork()
    if not child:
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_MAX_S, CPU_MAX_S))
        print(json.dumps({"said": tried(line.strip()), "peak": peak()}), flush=True)
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        print(json.dumps({"said": "accepted", "peak": 0, "died": True}), flush=True)
"""

REFERS = f"---\n{HEAD}spec:\n  a:\n" + "  - ${{ v }}\n" * 20_000
# Made when they are used: all of them are two hundred megabytes.
BOMBS: dict[str, Callable[[], str]] = {
    "a text that is put in many times": lambda: (
        VARIABLES + f"v: {{type: string, default: {'x' * 10_000}}}\n{REFERS}"
    ),
    "a list that is put in many times": lambda: (
        VARIABLES + f"v: {{type: list, default: [{'x, ' * 10_000}]}}\n{REFERS}"
    ),
    "unknown variables in many documents": lambda: (
        f"{VARIABLES}v: {{type: string, default: x}}\n"
        + f"---\n{HEAD}spec: {{template: {{script: '${{{{ w }}}}'}}}}\n" * 3_000
    ),
    "unused variables": lambda: (
        VARIABLES
        + "  ".join(f"v{n}: {{type: string, default: x}}\n" for n in range(900))
        + f"---\n{HEAD}spec: {{}}\n" * 1_000
    ),
    "a billion laughs": lambda: (
        "a: &a [x, x]\n"
        + "".join(
            f"{chr(98 + n)}: &{chr(98 + n)} [*{chr(97 + n)}, *{chr(97 + n)}]\n" for n in range(20)
        )
    ),
    "a quadratic bomb": lambda: "a: &a " + "x" * 100_000 + "\nb: [" + "*a, " * 100_000 + "]\n",
    "an alias of itself": lambda: "a: &a [*a]\n",
    "merge keys": lambda: "a: &a {x: 1}\n" + "".join(f"b{n}: {{<<: *a}}\n" for n in range(10_000)),
    "depth in flow": lambda: "[" * 1_000_000,
    "depth in flow, closed": lambda: "[" * 100 + "]" * 100,
    "depth in mappings": lambda: "{a: " * 1_000_000,
    "depth in blocks": lambda: "- " * 1_000_000,
    "depth by indentation": lambda: "\n".join(" " * depth + "a:" for depth in range(2000)),
    "depth of complex keys": lambda: "? " * 1_000_000,
    "depth of keys in flow": lambda: "{? " * 100_000,
    "directives": lambda: "%TAG !a! x:\n" * 500_000 + "---\na\n",
    "anchors": lambda: "".join(f"- &a{n} x\n" for n in range(60_000)),
    "tags": lambda: "- !x y\n" * 500_000,
    "documents": lambda: "---\na\n" * 1_000_000,
    "empty documents": lambda: "---\n" * 1_500_000,
    "keys": lambda: "{" + ",".join(f"k{n}" for n in range(50_000)) + "}",
    "duplicate keys": lambda: "{" + "a," * 2_000_000 + "}",
    "a long key": lambda: '"' + "k" * 4_000_000 + '": 1',
    "a long text": lambda: "a: " + "x" * 7_000_000,
    "a long number": lambda: "a: " + "9" * 7_000_000,
    "a long float": lambda: "a: 1." + "9" * 7_000_000 + "e5",
    "escapes": lambda: 'a: "' + "\\x41" * 1_700_000 + '"',
    "comments": lambda: "#\n" * 4_000_000,
    "wrong items": lambda: HEAD + "spec: {tasks: {items: [" + "0," * 60_000 + "]}}",
    "wrong fields": lambda: HEAD + "spec: {" + ",".join(f"k{n}: 0" for n in range(20_000)) + "}",
    "wrong variables": lambda: (
        HEAD
        + "spec: {template: {script: x, env: {"
        + ",".join(f"K{n}: 0" for n in range(20_000))
        + "}}}"
    ),
    "mounts": lambda: (
        HEAD
        + "spec: {template: {script: x, volumes: ["
        + ",".join(f"{{name: v, mountPath: /{n}}}" for n in range(20_000))
        + "]}}"
    ),
    "stages": lambda: (
        HEAD.replace("BatchJob", "TrainingRun")
        + "spec: {template: {script: x}, stages: ["
        + ",".join(f"{{name: s{n}}}" for n in range(20_000))
        + "]}"
    ),
    "a wide grid": lambda: (
        HEAD.replace("BatchJob", "Sweep")
        + "spec: {search: {method: grid, program: x, parameters: {"
        + ",".join(f"p{n}: {{values: [1, 2]}}" for n in range(9000))
        + "}}}"
    ),
    "a wide matrix": lambda: (
        HEAD
        + "spec: {template: {script: x}, tasks: {matrix: {"
        + ",".join(f"p{n}: [1, 2]" for n in range(9000))
        + "}}}"
    ),
}


@pytest.fixture(scope="module")
def reader() -> Iterator[Reader]:
    text = PROGRAM.replace("CPU_MAX_S", str(CPU_MAX_S))
    with subprocess.Popen(
        [sys.executable, "-c", text], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield process


@pytest.mark.parametrize("name", list(BOMBS))
def test_a_bomb_is_refused_within_little_memory(name: str, tmp_path: Path, reader: Reader) -> None:
    path = tmp_path / "bomb.yaml"
    path.write_text(BOMBS[name](), encoding="utf-8")
    assert_refused(path, reader)


def test_a_file_of_fifty_megabytes_is_refused_within_little_memory(
    tmp_path: Path, reader: Reader
) -> None:
    path = tmp_path / "large.yaml"
    path.write_bytes(b"- abcdefg\n" * 5_000_000)
    assert "larger than 8 MiB" in assert_refused(path, reader)


def assert_refused(path: Path, reader: Reader) -> str:
    assert reader.stdin is not None and reader.stdout is not None
    reader.stdin.write(f"{path}\n")
    reader.stdin.flush()
    answer = json.loads(reader.stdout.readline())
    assert answer["said"] != "accepted"
    assert len(answer["said"]) < ANSWER_CHARS_MAX
    assert answer["peak"] < MEMORY_MAX_BYTES, f"{answer['peak'] / 1024**2:.0f} MiB"
    return str(answer["said"])


def test_a_file_may_hold_so_many_values_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader_module, "NODES_MAX", 2_000)
    with pytest.raises(ManifestErrors, match="more than 2,000 values"):
        load_manifests([Document("x.yaml", "[" + "0," * 2_001 + "]", "/")])


@pytest.mark.only_all(reason="a file of more values than one may hold, within little memory")
def test_the_number_of_values_in_a_file_has_a_limit(tmp_path: Path, reader: Reader) -> None:
    path = tmp_path / "values.yaml"
    path.write_text("[" + "0," * (NODES_MAX + 1) + "]", encoding="utf-8")
    assert "more than 2,000,000 values" in assert_refused(path, reader)


NAMES = [
    "",
    "a" * 512,
    "../../etc/passwd",
    "a/b",
    "a\nb",
    "a\tb",
    "a\0b",
    "\u202egnp.exe",
    "\x1b[2Jx",
    "Ünïcode",
    "名前",
    "-a",
    "a-",
    "a.b",
    " a",
    "a ",
    "${IFS}",
    "$(id)",
    "\ufeffa",
    "a\u200bb",
]


@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
def test_a_hostile_name_is_refused_in_one_printable_line(name: str) -> None:
    for text in (
        HEAD.replace("{name: x}", json.dumps({"name": name})) + "spec: {template: {script: x}}",
        HEAD + "spec: {template: {script: x, secrets: [" + json.dumps(name) + "]}}",
        HEAD + "spec: {placement: {provider: " + json.dumps(name) + "}, template: {script: x}}",
    ):
        with pytest.raises(ManifestErrors) as caught:
            load_manifests([Document("x.yaml", text, "/")])
        (problem,) = caught.value.problems
        assert "a name must be 1 to 63" in str(problem)
        assert str(problem).isprintable()
        assert len(str(problem)) < 400


@pytest.mark.parametrize("name", ["\x1b[31mred.yaml", "a\nb.yaml", "\u202ex.yaml"])
def test_a_hostile_file_name_is_shown_escaped(name: str) -> None:
    with pytest.raises(ManifestErrors) as caught:
        load_manifests([Document(name, "a: [", "/"), Document(name, "run: x\nsetup: y", "/")])
    assert all(line.isprintable() for line in str(caught.value).split("\n"))


def test_hostile_keys_are_shown_escaped_and_short() -> None:
    key = json.dumps("\x1b[2J\u202e" + "k" * 10_000)
    with pytest.raises(ManifestErrors) as caught:
        load_manifests(
            [Document("x.yaml", HEAD + f"spec: {{template: {{script: x}}, {key}: 1}}", "/")]
        )
    (problem,) = caught.value.problems
    assert str(problem).isprintable()
    assert len(str(problem)) < 200
