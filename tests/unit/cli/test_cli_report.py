"""`fleetctl report`: one page that needs no server, of whatever is stored."""

from __future__ import annotations

import re
from pathlib import Path

from tests.docs.fleet import Fleet

MARKUP = "<img src=x onerror=alert(1)>"


def job(name: str, python: str, *, namespace: str = "default") -> str:
    return (
        "{apiVersion: fleetctl.dev/v1alpha1, kind: BatchJob, "
        f"metadata: {{name: {name}, namespace: {namespace}}}, spec: {{backoffLimit: 0, "
        f"tasks: {{items: [{{a: 1}}]}}, template: {{python: '{python}'}}}}}}"
    )


def test_a_page_shows_what_is_stored_and_why_it_failed(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path / "home")
    fleet.ok("apply", "-f", "-", "--wait", stdin=job("good", "SUBMIT(x=1)"))
    bad = job("bad", f'raise ValueError("{MARKUP}")', namespace="team")
    assert fleet.run("apply", "-f", "-", "--wait", stdin=bad).code == 1
    file = tmp_path / "fleet.html"
    assert f"{file} written" in fleet.run("report", "-A", "-o", str(file)).talk
    page = file.read_text("utf-8")
    assert "1 failed, 1 succeeded" in page
    assert "batchjob/bad -n team" in page
    assert "fleetctl logs batchjob/bad -n team --failed" in page
    assert re.findall(r"<h2>(.*?)</h2>", page) == [
        "Failed, or waiting",
        "Spent in the last 7 days",
        "Batchjobs",
    ]
    assert "<script" not in page
    assert "<img" not in page
    assert not re.search(r"(?:src|href)=", page)
    fleet.ok("report", "-o", str(file))
    assert "bad" not in file.read_text("utf-8")
    fleet.close()


def test_a_file_of_another_kind_or_place_is_refused(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path / "home")
    assert "must end in .html" in fleet.run("report", "-o", "fleet.pdf").talk
    refused = fleet.run("report", "-o", str(tmp_path / "none" / "fleet.html"))
    assert refused.code == 2
    assert "cannot be written: no such file or directory" in refused.talk
    fleet.close()
