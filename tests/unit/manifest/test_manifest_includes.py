from __future__ import annotations

import hashlib
import os
import tracemalloc
from contextlib import nullcontext
from pathlib import Path

import pytest

from fleetctl.manifest import Document, Manifest, ManifestErrors, load_manifests
from fleetctl.manifest.files import parameter_rows
from fleetctl.manifest.files.fence import fence_directory
from fleetctl.manifest.files.parameter_rows import RowError, read_rows
from fleetctl.specs.blocks.template import Image
from fleetctl.specs.content import content_of, template_hash
from fleetctl.specs.kinds.batchjob import BatchJobSpec
from fleetctl.specs.kinds.registry import dump_spec
from fleetctl.specs.kinds.secret import SecretSpec
from fleetctl.specs.kinds.sweep import SweepSpec
from fleetctl.specs.values.packages import without_digest

HEAD = "apiVersion: fleetctl.dev/v1alpha1\nkind: {kind}\nmetadata: {{name: x}}\nspec:\n"
SEARCH = "method: random\nprogram: t.py\nrun_cap: 3\nparameters:\n  lr: {min: 3e-5, max: 1e-2}\n"


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "manifests").mkdir()
    return tmp_path / "manifests"


def load_in(directory: Path, kind: str, spec: str) -> Manifest:
    text = HEAD.format(kind=kind) + "".join(f"  {line}\n" for line in spec.splitlines())
    (found,) = load_manifests([Document("manifests/job.yaml", text, str(directory))])
    return found


def problems(directory: Path, kind: str, spec: str) -> list[str]:
    with pytest.raises(ManifestErrors) as caught:
        load_in(directory, kind, spec)
    return [str(it) for it in caught.value.problems]


def tasks(directory: Path, name: str, content: str | bytes, chunk: str = "") -> BatchJobSpec:
    data = content if isinstance(content, bytes) else content.encode()
    (directory / name).write_bytes(data)
    spec = load_in(
        directory, "BatchJob", f"template: {{script: x}}\ntasks: {{fromFile: {name}{chunk}}}"
    ).spec
    assert isinstance(spec, BatchJobSpec)
    return spec


@pytest.mark.parametrize(("written", "stored"), [("..", ".."), ("./src/", "src"), (".", ".")])
def test_a_source_path_stays_as_written_and_begins_at_the_manifest(
    here: Path, written: str, stored: str
) -> None:
    (here / "src").mkdir()
    manifest = load_in(here, "BatchJob", f"template: {{script: x, source: {{path: {written}}}}}")
    assert isinstance(manifest.spec, BatchJobSpec)
    assert manifest.spec.template.source is not None
    assert manifest.spec.template.source.path == stored
    assert manifest.origin == str((here / written).resolve())


def test_secret_files_begin_at_the_manifest(here: Path) -> None:
    spec = load_in(here, "Secret", "fromFile: {TOKEN: ../token, OTHER: /etc/other}").spec
    assert isinstance(spec, SecretSpec)
    assert spec.from_file == {"TOKEN": str(here.parent / "token"), "OTHER": "/etc/other"}


def test_a_wandb_file_runs_unchanged(here: Path) -> None:
    (here / "sweep.yaml").write_text(SEARCH)
    spec = load_in(here, "Sweep", "searchFrom: {file: sweep.yaml}\nparallelism: 2").spec
    assert isinstance(spec, SweepSpec)
    assert spec.search.parameters == {"lr": {"min": 3e-5, "max": 1e-2}}
    assert "searchFrom" not in dump_spec(spec)


def test_mistakes_in_a_wandb_file_are_found_there(here: Path) -> None:
    (here / "sweep.yaml").write_text(
        SEARCH.replace("min: 3e-5", "min: 3") + "a: 1\na: 2\nrunCap: 1"
    )
    found = problems(here, "Sweep", "searchFrom: {file: sweep.yaml}\nparallelism: -1")
    assert [it.split(": ")[0] for it in found] == [
        "manifests/job.yaml:6:16",
        "manifests/sweep.yaml:5:3",
        "manifests/sweep.yaml:6:1",
        "manifests/sweep.yaml:7:1",
        "manifests/sweep.yaml:8:1",
    ]


def test_a_wandb_file_that_is_broken_hides_nothing_else(here: Path) -> None:
    (here / "sweep.yaml").write_text("method: [")
    found = problems(here, "Sweep", "searchFrom: {file: sweep.yaml}\nparallelism: -1")
    assert [it.split(": ")[0] for it in found] == [
        "manifests/job.yaml:6:16",
        "manifests/sweep.yaml:1:9",
    ]


def test_a_wandb_file_of_two_documents_is_refused(here: Path) -> None:
    (here / "sweep.yaml").write_text(SEARCH + "---\n" + SEARCH)
    assert problems(here, "Sweep", "searchFrom: {file: sweep.yaml}") == [
        "manifests/sweep.yaml: the file must hold one sweep configuration"
    ]


def test_rows_of_json_become_items_in_the_stored_wish(here: Path) -> None:
    spec = tasks(here, "rows.jsonl", '{"id": 1, "tags": [null]}\n\n{"id": 2}\r\n')
    assert [dict(spec.params(index)) for index in range(spec.count())] == [
        {"id": 1, "tags": [None]},
        {"id": 2},
    ]
    assert "fromFile" not in dump_spec(spec)


def test_fields_of_csv_are_texts(here: Path) -> None:
    spec = tasks(here, "rows.csv", b'\xef\xbb\xbfname,zip\n"a, b",007\r\n"two\nlines",\n')
    assert [dict(spec.params(index)) for index in range(spec.count())] == [
        {"name": "a, b", "zip": "007"},
        {"name": "two\nlines", "zip": ""},
    ]


@pytest.mark.parametrize("form", ["{path: rows.jsonl, chunk: 2}", "rows.jsonl, chunk: 2"])
def test_rows_come_in_chunks_with_the_rest_last(here: Path, form: str) -> None:
    (here / "rows.jsonl").write_text('{"n": 1}\n{"n": 2}\n{"n": 3}\n')
    spec = load_in(here, "BatchJob", f"template: {{script: x}}\ntasks: {{fromFile: {form}}}").spec
    assert isinstance(spec, BatchJobSpec)
    assert [dict(spec.params(index)) for index in range(spec.count())] == [
        {"rows": [{"n": 1}, {"n": 2}]},
        {"rows": [{"n": 3}]},
    ]


@pytest.mark.parametrize(
    ("rows", "others", "right"),
    [("1\n2,3\n", "", "`b`"), ("1\n2\n3,4,5\n6,7\n", "2 rows", "`,`"), ("1,2,3\n", "", '"a, b"')],
)
def test_of_ragged_rows_all_are_counted_and_the_right_form_is_named(
    here: Path, rows: str, others: str, right: str
) -> None:
    with pytest.raises(ManifestErrors) as caught:
        tasks(here, "r.csv", f"a,b\n{rows}")
    (problem,) = caught.value.problems
    assert (problem.line, right in problem.hint) == (2, True)
    assert (others or "below") in problem.message or not others


@pytest.mark.parametrize(
    ("field", "base"),
    [
        ("tasks: {fromFile: none.csv}", "directory of the manifest"),
        ("template: {script: x, image: {pip: [-r none.txt]}}", "directory of the manifest"),
        ("template: {script: x, source: {path: none}}", "directory of the manifest"),
        ("template: {script: x, source: {path: src}, image: {requirements: x.txt}}", "source.path"),
        ("tasks: {fromFile: /none.csv}", ""),
    ],
)
def test_where_a_file_that_is_not_there_was_looked_for_is_said(
    here: Path, field: str, base: str
) -> None:
    (here / "src").mkdir()
    with pytest.raises(ManifestErrors) as caught:
        load_in(
            here, "BatchJob", field if "template" in field else f"template: {{script: x}}\n{field}"
        )
    hints = [it.hint for it in caught.value.problems]
    assert (base in hints[0]) if base else not hints[0]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("r.jsonl", '{"a": 1}\n[1]\n', ":2:1: the line must be a JSON object"),
        ("r.jsonl", '{"a": 1}\n{"a": \n', ":2:1: column 7 is not JSON: expecting value"),
        ("r.jsonl", '{"a": NaN}', ":1:1: `NaN` is not a JSON number"),
        ("r.jsonl", '{"a": 1e999}', ":1:1: a number must be finite"),
        ("r.jsonl", '{"a": 99999999999999999999}', ":1:1: a whole number must fit into 64 bits"),
        ("r.jsonl", '{"a": 1, "a": 2}', ":1:1: `a` is given twice"),
        ("r.jsonl", '{"a": ' + "[" * 100_000, ":1:1: the line is nested too deeply"),
        ("r.jsonl", b'{"a": 1}\n{"a": "\xff"}', ":2:1: the line is not UTF-8"),
        ("r.csv", "a,b\n1\n", ":2:1: the row has 1 field, and the header 2 columns"),
        ("r.csv", "a,a\n1,2\n", ":1:1: two columns have the name `a`"),
        ("r.csv", 'a\n"x\n', ":2:1: the row is not CSV: unexpected end of data"),
    ],
)
def test_a_wrong_row_is_found_by_its_line(
    here: Path, name: str, content: str | bytes, said: str
) -> None:
    with pytest.raises(ManifestErrors) as caught:
        tasks(here, name, content)
    assert [str(it) for it in caught.value.problems] == [f"manifests/{name}{said}"]


def test_each_line_that_is_wrong_is_found_in_one_round(here: Path) -> None:
    with pytest.raises(ManifestErrors) as caught:
        tasks(here, "r.jsonl", '{"a": 1}\n{"a" 2}\n[1]\n{"a": 3}\n{"a": }\n')
    assert [it.line for it in caught.value.problems] == [2, 3, 5]
    with pytest.raises(ManifestErrors) as caught:
        tasks(here, "r.jsonl", "x\n" * 50)
    assert [it.line for it in caught.value.problems] == list(range(1, 21))
    assert "so it is with 30 lines below it" in caught.value.problems[-1].message


def test_wrong_lines_take_no_memory_beyond_those_that_are_reported(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A read takes memory for the largest file that there may be.
    monkeypatch.setattr(parameter_rows, "ROWS_BYTES_MAX", 1024 * 1024)
    (here / "r.jsonl").write_text("x\n" * 20_000)
    tracemalloc.start()
    try:
        with pytest.raises(RowError, match="column 1 is not JSON") as caught:
            read_rows(str(here / "r.jsonl"))
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert str(caught.value.others[-1]).endswith("so it is with 19980 lines below it")
    assert peak_bytes < 8 * 1024 * 1024


def test_wrong_lines_beyond_the_most_rows_of_a_file_are_not_counted(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parameter_rows, "ROWS_MAX", 100)
    (here / "r.jsonl").write_text("x\n" * 1000)
    with pytest.raises(RowError, match="column 1 is not JSON") as caught:
        read_rows(str(here / "r.jsonl"))
    assert str(caught.value.others[-1]).endswith("so it is with 100 lines below it")


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("r.jsonl", "\n", "it holds no rows"),
        ("r.csv", "a,b\n", "it holds no rows"),
        ("r.txt", "x", "a file of rows must end in .jsonl or .csv"),
    ],
)
def test_a_file_without_rows_is_told_where_it_is_named(
    here: Path, name: str, content: str, said: str
) -> None:
    with pytest.raises(ManifestErrors) as caught:
        tasks(here, name, content)
    assert [str(it) for it in caught.value.problems] == [
        f"manifests/job.yaml:6:21: spec.tasks.fromFile is `{name}`; {said}"
    ]


def test_rows_beyond_the_limit_of_bytes_are_refused(here: Path) -> None:
    with (here / "big.jsonl").open("wb") as stream:
        stream.truncate(100 * 1024**3)
    (said,) = problems(here, "BatchJob", "template: {script: x}\ntasks: {fromFile: big.jsonl}")
    assert said.endswith("it is larger than 64 MiB")


def test_names_of_columns_must_make_parameters(here: Path) -> None:
    with pytest.raises(ManifestErrors, match="a parameter's name must be"):
        tasks(here, "r.csv", "a=b\n1\n")


def test_a_requirements_file_becomes_what_it_lists(here: Path) -> None:
    (here / "base.txt").write_text("numpy==2.1 \\\n    --hash=sha256:12\n")
    (here / "requirements.txt").write_text("# ours\n-r base.txt\n\nscipy>=1  # for fits\n")
    manifest = load_in(
        here, "BatchJob", 'template: {script: x, image: {pip: ["-r requirements.txt", pandas]}}'
    )
    assert isinstance(manifest.spec, BatchJobSpec)
    assert manifest.spec.template.image is not None
    assert manifest.spec.template.image.pip == ("numpy==2.1", "scipy>=1", "pandas")
    assert manifest.read[1:] == (str(here / "requirements.txt"), str(here / "base.txt"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "names `away.txt`; it cannot be read: no such file"),
        ("--pre\n", "away.txt:1:1: `--pre` is an option of pip"),
        ("-r away.txt\n", "name each other in a circle"),
    ],
)
def test_mistakes_of_a_requirements_file_say_where(here: Path, text: str | None, said: str) -> None:
    if text is not None:
        (here / "away.txt").write_text(text)
    spec = 'template: {script: x, image: {pip: ["-r away.txt"]}}'
    assert said in str(problems(here, "BatchJob", spec))


def test_another_build_of_a_package_at_the_same_path_is_another_content(here: Path) -> None:
    wheel = here / "mine-1.0-py3-none-any.whl"
    spec = f"template: {{script: x, image: {{pip: [{wheel}, numpy]}}}}"
    found: list[tuple[str, str]] = []
    for build in (b"one", b"two", b"one"):
        wheel.write_bytes(build)
        manifest = load_in(here, "BatchJob", spec)
        assert isinstance(manifest.spec, BatchJobSpec)
        template = manifest.spec.template
        assert template.image is not None
        assert template.image.pip[1] == "numpy"
        assert without_digest(template.image.pip[0]) == str(wheel)
        whole = template_hash(template, manifest.spec.placement)
        found.append((content_of(template), whole))
    assert found[0] == found[2]
    assert found[0][0] != found[1][0]
    assert found[0][1] != found[1][1]


OWN = "template: {{script: x, source: {{path: code}}, image: {{pip: [pandas], requirements: {}}}}}"


def test_requirements_of_the_source_count_by_what_they_list(here: Path) -> None:
    """A file that moves is the same image, one that changes another."""
    (here / "code").mkdir()
    found = []
    for name, text in (("a.txt", "numpy\n"), ("b.txt", "numpy # twice\n"), ("a.txt", "numpy<2\n")):
        (here / "code" / name).write_text(text)
        manifest = load_in(here, "BatchJob", OWN.format(name))
        assert isinstance(manifest.spec, BatchJobSpec)
        template = manifest.spec.template
        assert template.image is not None and template.image.requirements is None
        assert manifest.read[1:] == (str(here / "code" / name),)
        found.append((template.image.pip, content_of(template)))
    assert found[0] == found[1]
    assert found[2][0] == ("pandas", "numpy<2") and found[2][1] != found[0][1]


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("away.txt", None, "spec.template.image.requirements names `away.txt`; it cannot be read"),
        ("../a.txt", None, "it must be a file inside the source, named from its top; any other is"),
        ("r.txt", "numpy\n-e .\n", "code/r.txt:2:1: `-e .` installs a directory, and an image is"),
        ("r.txt", "./lib[all]\n", "and set `env: {PYTHONPATH: ./lib}`"),
        ("r.txt", "--pre\n", "code/r.txt:1:1: `--pre` is an option of pip"),
        ("r.txt", "-r more.txt\n", "names `more.txt`; it cannot be read: no such file"),
        ("r.txt", "numpy=1.0\n", "is `numpy=1.0`; pip writes a version with `==`"),
    ],
)
def test_mistakes_of_requirements_of_the_source_say_where(
    here: Path, name: str, text: str | None, said: str
) -> None:
    (here / "code").mkdir()
    if text is not None:
        (here / "code" / name).write_text(text)
    assert said in str(problems(here, "BatchJob", OWN.format(name)))


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("", "there is no `source`; one beside the manifest is `pip: [-r r.txt]`"),
        ("source: {git: {url: 'https://example.org/a', ref: main}}, ", ""),
    ],
)
def test_requirements_need_a_source(here: Path, source: str, said: str) -> None:
    """Those of a repository are read where its commit is known."""
    spec = f"template: {{script: x, {source}image: {{requirements: r.txt}}}}"
    if said:
        assert said in str(problems(here, "BatchJob", spec))
    else:
        manifest = load_in(here, "BatchJob", spec)
        assert isinstance(manifest.spec, BatchJobSpec)
        assert manifest.spec.template.image is not None
        assert manifest.spec.template.image.requirements == "r.txt"


def image_in(here: Path, pip: str, more: str = "") -> Image:
    text = f"template: {{script: x, image: {{pip: {pip}{more}}}}}"
    manifest = load_in(here, "BatchJob", text)
    assert isinstance(manifest.spec, BatchJobSpec)
    assert manifest.spec.template.image is not None
    return manifest.spec.template.image


def test_the_index_that_a_requirements_file_names_becomes_that_of_the_image(here: Path) -> None:
    (here / "r.txt").write_text(
        "-i https://a.example.org/simple\n--extra-index-url=https://b.example.org/cpu\ntorch\n"
        "--find-links https://c.example.org/w\n"
    )
    found = image_in(here, '["-r r.txt", six]')
    assert found.pip == ("torch", "six") and found.pip_index is not None
    assert found.pip_index.model_dump(by_alias=True, exclude_none=True) == {
        "url": "https://a.example.org/simple",
        "extra": ("https://b.example.org/cpu",),
        "findLinks": ("https://c.example.org/w",),
    }
    own = "{url: https://mine.example.org/s, extra: [https://d.example.org]}"
    index = image_in(here, '["-r r.txt"]', f", pipIndex: {own}").pip_index
    assert index is not None and index.url == "https://mine.example.org/s"
    assert index.extra == ("https://d.example.org", "https://b.example.org/cpu")


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("-i https://a.example.org", "write `pipIndex: {url: https://a.example.org}`"),
        ("--index-url https://a.example.org", "write `pipIndex: {url: https://a.example.org}`"),
        (
            "--extra-index-url=https://a.example.org",
            "write `pipIndex: {extra: [https://a.example.org]}`",
        ),
        ("-f https://a.example.org", "write `pipIndex: {findLinks: [https://a.example.org]}`"),
        ("--pre", "list the requirements themselves"),
    ],
)
def test_an_option_in_pip_is_refused_with_the_way_out(here: Path, entry: str, said: str) -> None:
    with pytest.raises(ManifestErrors) as caught:
        image_in(here, f'["{entry}"]')
    assert said in str(caught.value.problems[0].hint)


def test_packages_beside_the_manifest_are_named_from_the_root(here: Path) -> None:
    (here / "dist").mkdir()
    (here / "dist" / "mine-1.0.whl").write_bytes(b"x")
    digest = hashlib.sha256(b"x").hexdigest()
    found = image_in(here, '["./dist/mine-1.0.whl", "-e .", "../lib[all]", "-e /opt/mine"]').pip
    assert found == (
        f"{here}/dist/mine-1.0.whl#sha256={digest}",
        str(here),
        f"{here.parent}/lib[all]",
        "/opt/mine",
    )


@pytest.mark.parametrize(
    ("more", "found", "said"),
    [
        ("source: {path: proj}", "pkg/src", ""),
        ("source: {path: proj}, workdir: jobs", "../pkg/src", ""),
        ("source: {path: proj}, env: {PYTHONPATH: lib}", "pkg/src:lib", ""),
        ("source: {path: other}", None, "outside of `source.path`"),
        ("source: {path: proj}, workdir: /data", None, "`workdir`"),
        ("env: {A: b}", None, "no `source.path`"),
    ],
)
def test_an_editable_package_of_the_source_is_imported_from_it(
    here: Path, more: str, found: str | None, said: str
) -> None:
    for name in ("proj/pkg/src/mine", "proj/jobs", "other"):
        (here / name).mkdir(parents=True)
    spec = f'template: {{script: x, image: {{pip: ["-e ./proj/pkg"]}}, {more}}}'
    manifest = load_in(here, "BatchJob", spec)
    assert isinstance(manifest.spec, BatchJobSpec)
    template = manifest.spec.template
    assert template.env.get("PYTHONPATH") == found
    assert template.image is not None and template.image.pip == (f"{here}/proj/pkg",)
    assert bool(manifest.warnings) == bool(said) and said in " ".join(manifest.warnings)


@pytest.mark.parametrize(
    ("kind", "spec"),
    [
        ("BatchJob", "template: {script: x}\ntasks: {fromFile: pipe.jsonl}"),
        ("BatchJob", "template: {script: x}\ntasks: {fromFile: pipe.csv}"),
        ("Sweep", "searchFrom: {file: pipe.jsonl}"),
        ("BatchJob", "template: {script: x, image: {pip: [-r pipe.jsonl]}}"),
        ("BatchJob", "template: {script: x, source: {path: .}, image: {requirements: pipe.jsonl}}"),
    ],
)
def test_a_pipe_without_a_writer_holds_nobody_up(here: Path, kind: str, spec: str) -> None:
    for name in ("pipe.jsonl", "pipe.csv"):
        os.mkfifo(here / name)
    [problem] = problems(here, kind, spec)
    assert "it is no regular file" in problem


def test_a_package_that_is_a_pipe_is_not_opened(here: Path) -> None:
    wheel = here / "x-1-py3-none-any.whl"
    os.mkfifo(wheel)
    manifest = load_in(here, "BatchJob", f"template: {{script: x, image: {{pip: ['{wheel}']}}}}")
    assert isinstance(manifest.spec, BatchJobSpec)


@pytest.mark.parametrize("held", [[], ["a.yaml"], ["a.yaml", "b.yaml"]])
@pytest.mark.parametrize("field", ["search", "list", "required"])
def test_a_directory_in_place_of_a_file_is_refused(here: Path, field: str, held: list[str]) -> None:
    (here / "folder").mkdir()
    for name in held:
        (here / "folder" / name).write_text("method: grid\n")
    kind, spec = LONG_NAMES[field]
    (found,) = problems(here, kind, spec.format(name="folder"))
    assert "directory" in found


LONG = "n" * 5000
LONG_NAMES = {
    "tasks": ("BatchJob", "template: {{script: x}}\ntasks: {{fromFile: {name}}}"),
    "search": ("Sweep", "searchFrom: {{file: {name}}}\nparallelism: 2"),
    "source": ("BatchJob", "template: {{script: x, source: {{path: {name}}}}}"),
    "list": ("BatchJob", "template: {{script: x, image: {{pip: [-r {name}]}}}}"),
    "wheel": ("BatchJob", "template: {{script: x, image: {{pip: [./{name}.whl]}}}}"),
    "required": (
        "BatchJob",
        "template: {{script: x, source: {{path: .}}, image: {{requirements: {name}}}}}",
    ),
    "secret": ("Secret", "fromFile: {{TOKEN: {name}}}"),
}


@pytest.mark.parametrize("name", [LONG, "d/" * 2500, f"{LONG}/x"])
@pytest.mark.parametrize("field", LONG_NAMES)
@pytest.mark.parametrize("inside", [False, True])
def test_a_path_that_no_disk_takes_is_refused_in_words_or_left_for_later(
    here: Path, field: str, name: str, inside: bool
) -> None:
    kind, spec = LONG_NAMES[field]
    with fence_directory(here) if inside else nullcontext():
        try:
            load_in(here, kind, spec.format(name=name))
        except ManifestErrors as errors:
            assert all(len(str(it)) < 2000 for it in errors.problems)
        else:
            assert field in ("wheel", "secret")
