"""Hints that quote a text for YAML: the text that is copied from one means what the user wrote."""

from __future__ import annotations

import re

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from fleetctl.manifest import Document, ManifestErrors, load_manifests
from fleetctl.manifest.problems import quote_text, yaml_text

JOB = """\
apiVersion: fleetctl.dev/v1alpha1
kind: BatchJob
metadata: {name: a}
spec:
  template:
    """
PLAIN = st.text(st.characters(codec="ascii", categories=("L", "N", "P", "S", "Zs")), max_size=40)


def hint_copied(line: str) -> object:
    """Returns the value that the one hint's text is read as."""
    with pytest.raises(ManifestErrors) as caught:
        load_manifests([Document("job.yaml", f"{JOB}{line}\n", "")])
    (found,) = caught.value.problems
    [written] = re.findall(r"write `(.*)`", found.hint)
    return yaml.safe_load(written)


@given(PLAIN)
def test_a_text_is_read_back_from_any_place(text: str) -> None:
    for form in (yaml_text(text), quote_text(text)):
        assert yaml.safe_load(f"key: {form}") == {"key": text}
        assert yaml.safe_load(f"{{key: [{form}, {form}]}}") == {"key": [text, text]}


@pytest.mark.parametrize(
    "line",
    [
        'script: echo "{\\"loss\\": $lr}"',
        "script: echo it's key: value",
        "script: say this: that",
    ],
)
def test_the_hint_for_an_unquoted_colon_can_be_copied(line: str) -> None:
    assert hint_copied(line) == {"script": line.removeprefix("script: ")}


@pytest.mark.parametrize(
    "words", ["[echo, 'a: b', '|', cat]", "['echo \"a: b\" # no']", "['a, b > c']"]
)
def test_the_hint_for_shell_text_can_be_copied(words: str) -> None:
    assert hint_copied(f"command: {words}") == {"script": " ".join(yaml.safe_load(words))}
