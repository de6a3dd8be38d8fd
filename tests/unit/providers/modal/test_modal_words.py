"""What Modal says, in our words: errors of its SDK, ends of its sandboxes, settings."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import grpclib
import pytest
from modal import exception as sdk

from fleetctl.common.errors import FleetctlError, Refused, Unavailable
from fleetctl.providers.modal.connection import modal_connection
from fleetctl.providers.modal.connection.modal_errors import classify_error, retryable_call
from fleetctl.providers.modal.runs import modal_streams
from fleetctl.providers.modal.runs.modal_sandboxes import ModalFacts, resolve_fate
from fleetctl.providers.remote.sandboxes.sandbox_protocol import Cause
from fleetctl.specs.blocks.template import Template

CREATION_RATE = "Sandbox creation rate limit (5/s) exceeded"
NO_CAPACITY = "Insufficient capacity to create sandbox."


def throttled(message: str, after_s: float | None) -> Exception:
    error = sdk.ResourceExhaustedError(message)
    error._grpc_details = [] if after_s is None else [SimpleNamespace(retry_after_secs=after_s)]
    return error


def of_a_page(kind: type[Exception], status: str) -> Exception:
    """What the SDK makes of a proxy's answer: grpclib knows no better."""
    return kind(f"Received :status = {status!r}")


@pytest.mark.parametrize(
    ("error", "sort", "reason", "after_s", "account"),
    [
        # Of the account: everybody who asks with it waits, and nothing is final.
        (sdk.AuthError("bad token"), Unavailable, "KeyRefused", 15.0, True),
        (sdk.PermissionDeniedError("no"), Unavailable, "AccessDenied", 15.0, True),
        (sdk.VersionError("old"), Unavailable, "ClientTooOld", 15.0, True),
        (throttled("Workspace spend limit reached", None), Unavailable, "SpendLimit", 120.0, True),
        (sdk.PermissionDeniedError("billing is off"), Unavailable, "SpendLimit", 120.0, True),
        (sdk.ConflictError("payment is overdue"), Unavailable, "SpendLimit", 120.0, True),
        (throttled("too many containers", None), Unavailable, "Quota", 2.0, True),
        (throttled("GPU limit reached: 10", None), Unavailable, "Quota", 2.0, True),
        # Of the template alone.
        (sdk.InvalidError("bad count"), Refused, None, None, None),
        # Of the service.
        (throttled(CREATION_RATE, None), Unavailable, "RateLimited", 5.0, False),
        (throttled("slow down", 2.5), Unavailable, "RateLimited", 2.5, False),
        (sdk.ResourceExhaustedError(NO_CAPACITY), Unavailable, "NoCapacity", 60.0, False),
        (sdk.NotFoundError("secret"), Unavailable, "Unavailable", 5.0, False),
        (sdk.UnimplementedError("no"), Unavailable, "UnknownAnswer", 5.0, False),
        (throttled("the moon is full", None), Unavailable, "UnknownAnswer", 5.0, False),
        # Nothing is certain after these: the request may have been carried out.
        (sdk.ConflictError("state changed"), None, None, None, None),
        (sdk.ServiceError("unavailable"), None, None, None, None),
        (sdk.InternalError("oops"), None, None, None, None),
        (sdk.ConnectionError("reset"), None, None, None, None),
        (ConnectionResetError(), None, None, None, None),
        # A page of a gateway is no answer of Modal, whatever status it carries.
        (of_a_page(sdk.AuthError, "401"), None, None, None, None),
        (of_a_page(sdk.PermissionDeniedError, "403"), None, None, None, None),
        (of_a_page(sdk.UnimplementedError, "404"), None, None, None, None),
        (of_a_page(sdk.InternalError, "400"), None, None, None, None),
    ],
)  # fmt: skip
def test_an_error_of_the_sdk_says_what_is_certain(
    error: Exception,
    sort: type[FleetctlError] | None,
    reason: str | None,
    after_s: float | None,
    account: bool | None,
) -> None:
    certain_error = classify_error(error, "it cannot be made")
    assert (type(certain_error) if certain_error is not None else None) is sort
    if isinstance(certain_error, Unavailable):
        assert (certain_error.reason, certain_error.retry_after_s, certain_error.account) == (
            reason,
            after_s,
            account,
        )
    if certain_error is not None:
        assert str(certain_error).startswith("it cannot be made: ")
    if isinstance(certain_error, Refused) or account:
        assert certain_error is not None
        assert certain_error.hint or reason == "Quota"


@pytest.mark.parametrize(
    ("error", "reason", "words"),
    [
        (sdk.ServiceError("away"), "Unavailable", "away"),
        (sdk.InternalError("oops"), "Unavailable", "oops"),
        (ConnectionResetError("cut"), "Unavailable", "cut"),
        (of_a_page(sdk.AuthError, "401"), "UnknownAnswer", "what answered is not Modal"),
        (of_a_page(sdk.InternalError, "400"), "UnknownAnswer", "status = '400'"),
        (sdk.DataLossError("words nobody knows"), "UnknownAnswer", "words nobody knows"),
    ],
)
def test_a_question_whose_answer_nobody_knows_shows_its_words(
    error: Exception, reason: str, words: str
) -> None:
    async def play() -> None:
        async with retryable_call("no event arrives", deadline_s=1.0):
            raise error

    with pytest.raises(Unavailable, match=words) as caught:
        asyncio.run(play())
    assert (caught.value.reason, caught.value.account) == (reason, False)


async def _raise(error: BaseException) -> None:
    raise error


async def _hang(_: BaseException) -> None:
    await asyncio.sleep(3600)


@pytest.mark.parametrize(
    ("act", "error", "sort"),
    [
        (_raise, sdk.AuthError("bad token"), Unavailable),
        (_raise, sdk.InvalidError("bad count"), Refused),
        (_raise, sdk.ServiceError("unavailable"), Unavailable),
        (_raise, grpclib.GRPCError(grpclib.Status.UNAVAILABLE), Unavailable),
        (_raise, ConnectionRefusedError(), Unavailable),
        (_hang, ValueError(), Unavailable),
        (_raise, sdk.NotFoundError("gone"), sdk.NotFoundError),
        (_raise, Unavailable("ours", reason="Building"), Unavailable),
        (_raise, ZeroDivisionError(), ZeroDivisionError),
    ],
)
def test_a_question_ends_in_an_answer_or_in_one_of_our_two_errors(
    act: Callable[[BaseException], Awaitable[None]], error: Any, sort: type[Exception]
) -> None:
    async def play() -> None:
        async with retryable_call("no event arrives", deadline_s=0.02):
            await act(error)

    with pytest.raises(sort):
        asyncio.run(play())


@pytest.mark.parametrize(
    ("facts", "cause"),
    [
        (ModalFacts(137, terminated=True, ours=True), Cause.STOPPED),
        (ModalFacts(0, ours=True), Cause.STOPPED),
        (ModalFacts(124, timed_out=True), Cause.TIMEOUT),
        (ModalFacts(124, timed_out=True, preemptible=True), Cause.TIMEOUT),
        (ModalFacts(137, terminated=True), Cause.TERMINATED),
        (ModalFacts(137, terminated=True, preemptible=True), Cause.TERMINATED),
        (ModalFacts(137), Cause.OUT_OF_MEMORY),
        (ModalFacts(137, preemptible=True), Cause.OUT_OF_MEMORY),
        (ModalFacts(0, preemptible=True), Cause.PREEMPTED),
        (ModalFacts(0), Cause.LOST),
        (ModalFacts(1), Cause.LOST),
        (ModalFacts(124), Cause.LOST),
        (ModalFacts(-1), Cause.LOST),
    ],
)
def test_why_a_sandbox_without_an_end_record_is_over(facts: ModalFacts, cause: Cause) -> None:
    found = resolve_fate(facts)
    assert found.cause is cause
    assert found.own == (cause is Cause.OUT_OF_MEMORY)


def test_settings_come_from_the_environment() -> None:
    environ = {"FLEETCTL_MODAL_CREATES_PER_S": "100", "FLEETCTL_MODAL_LIFETIME_S": "60.5"}
    found = modal_connection.from_environment(environ)
    assert (found.creates_per_s, found.lifetime_s) == (100.0, 60.5)
    assert modal_connection.from_environment({}) == modal_connection.ModalSettings()


@pytest.mark.parametrize("value", ["many", "0", "-1", "inf", "nan"])
def test_a_setting_that_is_no_number_above_zero_is_refused(value: str) -> None:
    with pytest.raises(Refused, match="FLEETCTL_MODAL_CALL_S"):
        modal_connection.from_environment({"FLEETCTL_MODAL_CALL_S": value})


@pytest.mark.parametrize(
    ("template", "guest"),
    [
        ({"command": ["x"]}, "python"),
        ({"command": ["x"], "image": {"registry": "alpine"}}, "posix"),
        ({"command": ["x"], "image": {"registry": "alpine", "python": "3.12"}}, "python"),
        ({"python": "x", "image": {"registry": "alpine"}}, "python"),
        ({"script": "x", "image": {"pip": ["numpy"]}}, "python"),
    ],
)
def test_an_image_that_need_not_have_python_gets_the_guest_that_needs_none(
    template: dict[str, Any], guest: str
) -> None:
    assert modal_streams.guest_for(Template.model_validate(template)) == guest
