"""Which namespace a manifest belongs to."""

from __future__ import annotations

import pytest

from fleetctl.manifest import Document, ManifestErrors, load_manifests
from fleetctl.manifest.document.envelope import NamespaceChoice

JOB = """apiVersion: fleetctl.dev/v1alpha1
kind: BatchJob
metadata: {name: x%s}
spec: {template: {script: echo}}
"""
PROVIDER = """apiVersion: fleetctl.dev/v1alpha1
kind: Provider
metadata: {name: local%s}
spec: {}
"""
TEAM = NamespaceChoice("team", binding=True)


def namespace(text: str, chosen: NamespaceChoice) -> str:
    (found,) = load_manifests([Document("job.yaml", text, ".")], chosen)
    return found.namespace


def refusal(text: str, chosen: NamespaceChoice) -> str:
    with pytest.raises(ManifestErrors) as caught:
        load_manifests([Document("job.yaml", text, ".")], chosen)
    return str(caught.value)


def test_a_document_without_a_word_goes_where_the_flag_or_the_default_says() -> None:
    assert namespace(JOB % "", NamespaceChoice()) == "default"
    assert namespace(JOB % "", TEAM) == "team"


def test_what_a_document_says_wins_over_a_default_of_the_environment() -> None:
    assert namespace(JOB % ", namespace: other", NamespaceChoice("team")) == "other"
    assert namespace(JOB % ", namespace: team", TEAM) == "team"


def test_a_document_that_says_another_namespace_than_the_flag_is_refused() -> None:
    assert refusal(JOB % ", namespace: other", TEAM) == (
        "job.yaml:3:32: metadata.namespace is `other`, and `-n` says `team`\n"
        "hint: write `-n other`, or leave one of the two out"
    )


def test_a_provider_is_of_the_whole_store() -> None:
    assert namespace(PROVIDER % "", TEAM) == "default"
    said = refusal(PROVIDER % ", namespace: team", TEAM)
    assert "metadata.namespace is `team`, and a Provider has no namespace" in said


def test_the_same_name_twice_is_no_error_in_two_namespaces_and_one_in_one() -> None:
    two = f"{JOB % ''}---\n{JOB % ', namespace: team'}"
    assert [it.key for it in load_manifests([Document("two.yaml", two, ".")])] == [
        "batchjob/x",
        "batchjob/x -n team",
    ]
    with pytest.raises(ManifestErrors, match="batchjob/x -n team is declared twice"):
        load_manifests([Document("two.yaml", two, ".")], NamespaceChoice("team"))


def test_a_volume_whose_name_at_its_provider_would_be_too_long_is_refused() -> None:
    mounts = "volumes: [{name: %s, mountPath: /data}]" % ("v" * 60)
    text = (JOB % ", namespace: team").replace("script: echo", f"script: echo, {mounts}")
    assert "both together may have 62 characters" in refusal(text, NamespaceChoice())
