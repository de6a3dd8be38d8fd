"""Where a model server is asked."""

from __future__ import annotations

import pytest

from fleetctl.specs.kinds.endpoint import EndpointSpec
from fleetctl.specs.values.model_urls import base_of, url_of

CHAT = "/v1/chat/completions"


@pytest.mark.parametrize(
    ("url", "asked"),
    [
        ("http://h:8000", "http://h:8000/v1/chat/completions"),
        ("http://h:8000/v1/", "http://h:8000/v1/chat/completions"),
        ("https://h/prefix/v1", "https://h/prefix/v1/chat/completions"),
        ("https://h/v1beta/openai/", "https://h/v1beta/openai/chat/completions"),
        ("https://h/api/paas/v4", "https://h/api/paas/v4/chat/completions"),
        ("https://h/openai/deployments/m", "https://h/openai/deployments/m/chat/completions"),
    ],
)
def test_a_path_is_what_clients_add_theirs_to_and_without_one_it_is_v1(
    url: str, asked: str
) -> None:
    assert url_of(base_of(url), CHAT) == asked


def test_a_server_of_ollamas_has_both_paths_below_its_url() -> None:
    for url in ("http://h/llama", "http://h/llama/v1"):
        base = base_of(url)
        assert url_of(base, "/api/chat", api="ollama") == "http://h/llama/api/chat"
        assert url_of(base, CHAT, api="ollama") == "http://h/llama/v1/chat/completions"


@pytest.mark.parametrize("name", ["Authorization", "api-key", "Host"])
def test_no_key_and_nothing_of_a_request_itself_is_among_the_headers(name: str) -> None:
    servers = [{"url": "http://h"}]
    with pytest.raises(ValueError, match=f"(header: {name}|`{name}` is of each request)"):
        EndpointSpec.model_validate({"servers": servers, "headers": {name: "x"}})
