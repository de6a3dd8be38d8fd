"""What Daytona's errors, states and frames mean to us, and how its machines are asked for."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from daytona.common import errors as sdk

from fleetctl.common.errors import Refused, Unavailable
from fleetctl.providers.daytona.connection.daytona_errors import (
    RATE_AFTER_S,
    classify_error,
    error_words,
    retry_after_s,
)
from fleetctl.providers.daytona.runs.daytona_creator import patience_s
from fleetctl.providers.daytona.runs.daytona_endings import DaytonaFacts, resolve_fate
from fleetctl.providers.daytona.runs.daytona_machines import (
    GPUS,
    DaytonaMachine,
    billed_resources,
    choose_machine,
)
from fleetctl.providers.daytona.runs.daytona_streams import (
    Guest,
    begin_command,
    count_reached,
    stop_command,
)
from fleetctl.providers.prices import price_table as prices
from fleetctl.providers.remote.sandboxes.sandbox_protocol import Cause, StreamOffsets
from fleetctl.providers.sources.clone_command import clone_credentials
from fleetctl.specs.blocks.resources import Resources
from fleetctl.specs.blocks.template import GitSource, Template

# -- errors ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "sort", "reason"),
    [
        (sdk.DaytonaAuthenticationError("Unauthorized", 401), Unavailable, "KeyRefused"),
        (sdk.DaytonaForbiddenError("Forbidden resource", 403), Unavailable, "AccessDenied"),
        (
            sdk.DaytonaForbiddenError("Organization is suspended: Depleted credits", 403),
            Unavailable,
            "SpendLimit",
        ),
        (
            sdk.DaytonaForbiddenError("Organization is suspended: Payment method required", 403),
            Unavailable,
            "SpendLimit",
        ),
        (
            sdk.DaytonaForbiddenError(
                "Organization is suspended: Please verify your email address", 403
            ),
            Unavailable,
            "Suspended",
        ),
        (sdk.DaytonaRateLimitError("ThrottlerException", 429), Unavailable, "RateLimited"),
        (
            sdk.DaytonaBadRequestError("Total CPU limit exceeded. Maximum allowed: 10.", 400),
            Unavailable,
            "Quota",
        ),
        (
            sdk.DaytonaBadRequestError("Snapshot quota exceeded. Maximum allowed: 100", 400),
            Unavailable,
            "Quota",
        ),
        (
            sdk.DaytonaBadRequestError("Volume 'x' is not in a ready state. Current state: c", 400),
            Unavailable,
            "VolumeNotReady",
        ),
        (
            sdk.DaytonaBadRequestError("Snapshot fleetctl-1 is inactive", 400),
            Unavailable,
            "SnapshotNotReady",
        ),
        (
            sdk.DaytonaBadRequestError("Snapshot name is not valid: use letters", 400),
            Refused,
            "",
        ),
        (sdk.DaytonaBadRequestError("Invalid mount path /etc", 400), Refused, ""),
        (sdk.DaytonaUnprocessableEntityError("no", 422), Refused, ""),
        (sdk.DaytonaNotFoundError("Volume 'x' not found", 404), Unavailable, "UnknownAnswer"),
        (sdk.DaytonaBadRequestError("No available runners", 400), Unavailable, "NoCapacity"),
        (sdk.DaytonaBadRequestError("a new sentence", 400), Unavailable, "UnknownAnswer"),
        (
            sdk.DaytonaBadRequestError("Snapshot x is not available in region eu", 400),
            Refused,
            "",
        ),
        (
            sdk.DaytonaForbiddenError("<html><body>403 Forbidden</body></html>", 403),
            Unavailable,
            "UnknownAnswer",
        ),
        (sdk.DaytonaConflictError("exists", 409), None, ""),
        (sdk.DaytonaInternalServerError("oops", 500), None, ""),
        (sdk.DaytonaBadGatewayError("<html>", 502), None, ""),
        (sdk.DaytonaConnectionError("reset"), None, ""),
        (sdk.DaytonaTimeoutError("slow"), None, ""),
    ],
)
def test_an_error_is_certain_only_when_nothing_can_have_been_made(
    error: Exception, sort: type[Exception] | None, reason: str
) -> None:
    certain_error = classify_error(error, "it cannot be made")
    assert type(certain_error) is (type(None) if sort is None else sort)
    if isinstance(certain_error, Unavailable):
        assert certain_error.reason == reason
        assert certain_error.retry_after_s > 0
    if isinstance(certain_error, Refused):
        assert certain_error.hint


@pytest.mark.parametrize(
    ("said", "helps", "misleads"),
    [
        (
            "Volume quota exceeded. Maximum allowed: 100",
            "volumes that no object names",
            "sandboxes",
        ),
        ("Snapshot quota exceeded. Maximum allowed: 100", "snapshots that no object", "sandboxes"),
        ("Total disk limit exceeded. Maximum allowed: 30GiB.", "stopped sandboxes", "orphans"),
        ("Total GPU limit exceeded. Maximum allowed: 0.", "has none of it", "orphans"),
        ("Total CPU limit exceeded. Maximum allowed: 10.", "limits are at", "none of it"),
    ],
)
def test_the_hint_of_a_quota_is_about_what_ran_out(said: str, helps: str, misleads: str) -> None:
    certain_error = classify_error(sdk.DaytonaBadRequestError(said, 400), "it cannot be made")
    assert isinstance(certain_error, Unavailable) and certain_error.account
    assert helps in certain_error.hint and misleads not in certain_error.hint


@pytest.mark.parametrize(
    ("headers", "after_s"),
    [
        ({"Retry-After-sandbox-create": "7"}, 7.0),
        ({"retry-after-Authenticated": "3", "RETRY-AFTER-sandbox-create": "12.5"}, 12.5),
        ({"Retry-After": "4"}, 4.0),
        ({"Retry-After-sandbox-create": "soon"}, RATE_AFTER_S),
        ({"X-RateLimit-Reset-sandbox-create": "60"}, RATE_AFTER_S),
        ({}, RATE_AFTER_S),
    ],
)
def test_each_throttler_has_a_header_of_its_own(headers: dict[str, str], after_s: float) -> None:
    assert retry_after_s(headers) == after_s


def test_the_page_of_a_proxy_is_not_told() -> None:
    page = "Failed to create sandbox: <html><body><h1>502 Bad Gateway</h1></body></html>"
    said = error_words(sdk.DaytonaBadGatewayError(page, status_code=502))
    assert said == "Failed to create sandbox: HTTP 502 from a proxy"
    assert error_words(sdk.DaytonaError("it is 1 < 2.\nReally.")) == "it is 1 < 2. Really"
    assert error_words(TimeoutError()) == "TimeoutError"
    assert len(error_words(sdk.DaytonaError("x" * 9000))) == 400


# -- endings ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("facts", "cause"),
    [
        (DaytonaFacts("started"), None),
        (DaytonaFacts("starting"), None),
        (DaytonaFacts("creating"), None),
        (DaytonaFacts("paused"), None),
        (DaytonaFacts("unknown"), None),
        (DaytonaFacts("a_state_of_the_future"), None),
        (DaytonaFacts("destroying", ours=True), None),
        (DaytonaFacts("destroyed", ours=True, evicted=True), Cause.STOPPED),
        (DaytonaFacts("destroyed", evicted=True), Cause.PREEMPTED),
        (DaytonaFacts("destroyed", queue_timed_out=True), Cause.QUEUE),
        (DaytonaFacts("destroyed", expired=True), Cause.TIMEOUT),
        (DaytonaFacts("destroyed"), Cause.LOST),
        (DaytonaFacts("stopped"), Cause.LOST),
        (DaytonaFacts("archived"), Cause.LOST),
        (DaytonaFacts("error", error="runner lost"), Cause.FAILED),
        (DaytonaFacts("build_failed"), Cause.FAILED),
        (DaytonaFacts(""), Cause.UNKNOWN),
        (DaytonaFacts("", ours=True), Cause.STOPPED),
    ],
)
def test_why_a_sandbox_without_an_end_record_is_over(
    facts: DaytonaFacts, cause: Cause | None
) -> None:
    found = resolve_fate(facts)
    assert (found.cause if found else None) == cause
    if cause is Cause.FAILED:
        assert found is not None
        assert found.detail == facts.error


@pytest.mark.parametrize(
    ("state", "minutes"),
    [
        ("starting", 5),
        ("creating", 15),
        ("pulling_snapshot", 30),
        ("pending_build", 60),
        ("building_snapshot", 60),
        ("restoring", 5),
        ("a_state_of_the_future", 5),
    ],
)
def test_5_a_state_is_waited_out_as_long_as_daytona_itself_lets_it_last(
    state: str, minutes: int
) -> None:
    assert 60 * minutes < patience_s(state) <= 60 * (minutes + 1)


# -- machines --------------------------------------------------------------------------------------


def made(**resources: Any) -> DaytonaMachine:
    return choose_machine(Resources.model_validate(resources))


def test_a_machine_is_whole_and_what_was_rounded_is_said() -> None:
    assert made() == DaytonaMachine()
    assert made(cpu=2, memory="4Gi", disk="10Gi") == DaytonaMachine(2, 4, 10)
    small = made(cpu="100m", memory=1, disk="512Mi")
    assert (small.cpu, small.memory, small.disk) == (1, 1, 1)
    assert small.note == "rounded up: cpu 0.1 to 1, memory 9.31e-10 to 1 GiB, disk 0.5 to 1 GiB"
    assert made(cpu=2, memory="4Gi").note == ""


def test_gpus_are_asked_for_by_the_sdks_own_names() -> None:
    assert made(gpu="h100:2") == DaytonaMachine(gpu=2, gpu_type="H100")
    assert made(gpu="any") == DaytonaMachine(gpu=1, gpu_type=None)
    with pytest.raises(Refused, match="`H10`, which Daytona does not have") as caught:
        made(gpu="H10")
    assert caught.value.hint.startswith("it has H100, ")  # and proposes none at another price


def test_the_list_of_gpus_is_the_sdks() -> None:
    from daytona import GpuType

    known = {one.value for one in GpuType}
    assert set(GPUS) == {one for one in known if not one.startswith("unknown")}


def test_the_whole_machine_is_paid_for() -> None:
    table = prices.load_prices("daytona")
    half = Resources.model_validate({"cpu": 0.5, "memory": "512Mi", "gpu": "H100:1"})
    whole = Resources.model_validate({"cpu": 1, "memory": "1Gi", "gpu": "H100:1"})
    assert table.usd_per_s(billed_resources(half)) == table.usd_per_s(whole)
    unknown = Resources.model_validate({"gpu": "B300:1"})
    assert table.usd_per_s(billed_resources(unknown)) is None


# -- guests and frames -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("template", "label"),
    [
        ({"python": "1"}, "python"),
        ({"script": "true"}, "python"),
        ({"script": "true", "image": "alpine:3"}, "posix"),
        ({"python": "1", "image": "me/mine:1"}, "python"),
        ({"script": "true", "image": {"snapshot": "s"}}, "posix-uploaded"),
        ({"python": "1", "image": {"snapshot": "s"}}, "python-uploaded"),
    ],
)
def test_which_guest_a_sandbox_has_is_told_by_its_label(
    template: dict[str, Any], label: str
) -> None:
    guest = Guest.of_template(Template.model_validate(template))
    assert guest.label == label
    assert Guest.of_label(label) == guest


def test_13_no_command_of_ours_leaves_its_input_to_the_service() -> None:
    guest = Guest(posix=False, uploaded=False)
    assert " </dev/null" in begin_command(["guest", "attach"], "the order", "")
    assert " </tmp/order" in begin_command(["guest", "attach"], "the order", "/tmp/order")
    assert " </dev/null" in stop_command(guest, "run-0", 1.0)


def log(at: int, data: bytes, *, as_hex: bool = False) -> bytes:
    text = {"hex": data.hex()} if as_hex else {"b64": base64.b64encode(data).decode()}
    return json.dumps({"e": "log", "at": at, **text}, separators=(",", ":")).encode() + b"\n"


def test_how_far_a_piece_came_is_counted_as_the_mirror_counts() -> None:
    started = b'{"e":"started","at":1.5}\n'
    piece = started + log(10, b"hello") + b'{"e":"alive"}\n' + log(15, b"!", as_hex=True)
    there = count_reached(piece, StreamOffsets(journal=100, log=10))
    assert (there.at, there.over) == (StreamOffsets(journal=100 + len(started), log=16), False)
    ended = b'{"e":"ended","at":2}\n'
    there = count_reached(ended + b'{"e":"eof"}\n', there.at)
    assert (there.at.journal, there.over) == (100 + len(started) + len(ended), True)
    assert count_reached(b"", StreamOffsets(3, 4)).at == StreamOffsets(3, 4)


# -- credentials of a clone ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "environment", "found"),
    [
        ("https://github.com/a/b", {"GITHUB_TOKEN": "t"}, ("x-access-token", "t")),
        (
            "https://github.com/a/b",
            {"GIT_TOKEN": "g", "GITHUB_TOKEN": "t"},
            ("x-access-token", "g"),
        ),
        ("https://gitlab.com/a/b", {"GITLAB_TOKEN": "t"}, ("oauth2", "t")),
        ("https://example.org/a", {"GITHUB_TOKEN": "t"}, None),
        ("https://example.org/a", {"GIT_TOKEN": "t", "GIT_USERNAME": "me"}, ("me", "t")),
        ("http://example.org/a", {"GIT_TOKEN": "t"}, None),
        ("http://127.0.0.1:8080/a", {"GIT_TOKEN": "t"}, ("x-access-token", "t")),
        ("git@github.com:a/b", {"GITHUB_TOKEN": "t"}, None),
        ("https://github.com/a/b", {}, None),
    ],
)
def test_a_token_goes_to_its_own_host_alone_and_over_safe_lines(
    url: str, environment: dict[str, str], found: tuple[str, str] | None
) -> None:
    assert clone_credentials(GitSource(url=url), environment) == found
