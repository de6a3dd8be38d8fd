"""The export itself: ids, samplers, what is switched on, the bounded queue and its file, logs."""

from __future__ import annotations

import logging
import stat
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetctl.common import telemetry
from fleetctl.common.telemetry import (
    SpanExport,
    SpanRecord,
    TelemetrySettings,
    TraceContext,
    derive_span_id,
    derive_trace_id,
    is_sampled,
    parse_traceparent,
    read_settings,
)
from fleetctl.daemon.serve import OtlpLogHandler
from fleetctl.tracking.annotations import TRACES, find_trace, note_trace
from tests.telemetry.collector import collecting

CONTEXT = TraceContext(derive_trace_id("a"), derive_span_id("b"))
ON = TelemetrySettings(traces=True)
HTTP = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"}
FAST = {"OTEL_BSP_SCHEDULE_DELAY": "20"}


def make_span(number: int, *, confirms: str = "") -> SpanRecord:
    span_id = derive_span_id(number)
    return SpanRecord(f"s{number}", CONTEXT.trace_id, span_id, "", 1.0, 2.0, confirms=confirms)


def make_export(spool: Path | None = None) -> SpanExport:
    return SpanExport(FAST, settings=ON, instance="store", spool=spool)


def test_a_traceparent_is_read_back_as_it_was_written() -> None:
    for sampled in (True, False):
        context = TraceContext(CONTEXT.trace_id, CONTEXT.span_id, sampled)
        assert parse_traceparent(context.header) == context


@pytest.mark.parametrize(
    "text",
    [
        "",
        "00-abc-def-01",
        f"ff-{'a' * 32}-{'b' * 16}-01",
        f"00-{'0' * 32}-{'b' * 16}-01",
        f"00-{'a' * 32}-{'0' * 16}-01",
        f"00-{'g' * 32}-{'b' * 16}-01",
        f"00-{'a' * 32}-{'b' * 16}-01-more",
    ],
)
def test_a_text_that_is_no_traceparent_is_no_trace(text: str) -> None:
    assert parse_traceparent(text) is None


def test_a_later_version_is_read_as_far_as_it_is_known() -> None:
    assert parse_traceparent(f"01-{'a' * 32}-{'b' * 16}-01-more") is not None


@given(st.text())
def test_no_text_breaks_the_reader(text: str) -> None:
    found = parse_traceparent(text)
    assert found is None or parse_traceparent(found.header) == found


@pytest.mark.parametrize("text", ["", "x", "{}", "[1]", "[[1]]", '[["a", "b"]]', "null", "7"])
def test_a_note_of_somebody_else_is_no_trace_and_is_replaced(text: str) -> None:
    notes = {TRACES: text}
    assert find_trace(notes, 5.0) is None
    assert find_trace(note_trace(notes, CONTEXT.header, 2.0), 5.0) == (2.0, CONTEXT.header)


def test_a_run_belongs_to_the_last_trace_before_it() -> None:
    notes: dict[str, str] = {}
    for at_s in range(1, 12):
        notes = note_trace(notes, f"trace {at_s}", float(at_s))
    assert find_trace(notes, 9.5) == (9.0, "trace 9")
    assert find_trace(notes, 100.0) == (11.0, "trace 11")
    assert find_trace(notes, 0.0) == (4.0, "trace 4")  # the oldest that is still known


def test_samplers_decide_as_the_standard_has_them() -> None:
    off = TraceContext(CONTEXT.trace_id, CONTEXT.span_id, sampled=False)
    low, high = "0" * 31 + "1", "f" * 32

    def decide(name: str, trace_id: str, parent: TraceContext | None, share: str = "") -> bool:
        named = {"OTEL_TRACES_SAMPLER": name, "OTEL_TRACES_SAMPLER_ARG": share}
        return is_sampled(trace_id, parent, named)

    assert is_sampled(low, None, {})
    assert not is_sampled(low, off, {})
    assert decide("always_on", low, off)
    assert not decide("always_off", low, CONTEXT)
    assert decide("traceidratio", low, None, "0.5")
    assert not decide("traceidratio", high, None, "0.5")
    assert decide("parentbased_traceidratio", high, CONTEXT, "0.5")
    assert not decide("parentbased_always_off", low, None)


@pytest.mark.parametrize(
    ("variables", "traces", "logs", "problem"),
    [
        ({}, False, False, ""),
        (HTTP, True, False, ""),
        ({**HTTP, "OTEL_SDK_DISABLED": "true"}, False, False, ""),
        ({**HTTP, "OTEL_TRACES_EXPORTER": "none"}, False, False, ""),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, True, False, ""),
        ({**HTTP, "OTEL_LOGS_EXPORTER": "otlp"}, True, True, ""),
        ({**HTTP, "OTEL_TRACES_EXPORTER": "none", "OTEL_LOGS_EXPORTER": "otlp"}, False, True, ""),
        ({**HTTP, "OTEL_TRACES_EXPORTER": "console"}, False, False, "`console`"),
        ({**HTTP, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, False, False, "`grpc`"),
    ],
)
def test_the_standard_variables_switch_the_signals(
    variables: Mapping[str, str], traces: bool, logs: bool, problem: str
) -> None:
    found = read_settings(variables)
    assert (found.traces, found.logs) == (traces, logs)
    assert problem in found.problem
    assert bool(problem) == bool(found.problem) == bool(found.hint)


def test_spans_wait_in_a_file_until_a_collector_has_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = tmp_path / "traces.jsonl"
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")  # nobody listens
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    first = make_export(spool)
    first.add([make_span(1)])
    first.hold([make_span(2, confirms="r2")])  # its transaction is committed
    first.hold([make_span(3, confirms="r3")])  # a kill comes before the commit
    first.close(30)
    assert stat.S_IMODE(spool.stat().st_mode) == 0o600
    with spool.open("a") as file:
        file.write('{"name": "cut by a ki')

    with collecting() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        second = make_export(spool)
        second.recover(lambda span: span.confirms == "r2")
        collector.until(lambda: len(collector.spans) == 2)
        second.add([make_span(1)])  # it was sent, and is not sent again
        second.hold([make_span(4)])
        second.release(committed=False)
        second.close(30)
        assert sorted(it.name for it in collector.spans) == ["s1", "s2"]
        third = make_export(spool)
        third.recover(lambda span: True)
        third.close(30)
        assert len(collector.spans) == 2
    assert not spool.exists()


def test_a_full_queue_drops_the_oldest_and_says_so_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(telemetry, "WAITING_MAX", 5)
    spool = tmp_path / "traces.jsonl"
    slow = {"OTEL_BSP_SCHEDULE_DELAY": "3600000"}
    with collecting() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        export = SpanExport(slow, settings=ON, instance="store", spool=spool)
        with caplog.at_level(logging.WARNING, logger="fleetctl.telemetry"):
            for number in range(12):
                export.add([make_span(number)])
        export.close(30)
        assert [it.name for it in collector.spans] == [f"s{it}" for it in range(7, 12)]
    assert [it.message for it in caplog.records] == ["spans are dropped, as too many wait"]


def test_a_log_record_has_its_keys_its_trace_and_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    with collecting() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        handler = OtlpLogHandler(
            {"OTEL_BLRP_SCHEDULE_DELAY": "20"},
            instance="store",
            locate=lambda keys: CONTEXT if keys.get("run") == "fl-1" else None,
            mask=lambda text: text.replace("s3cret", "***"),
        )
        log = logging.getLogger("tests.telemetry")
        log.setLevel(logging.INFO)
        log.addHandler(handler)
        log.warning("run s3cret", extra={"run": "fl-1", "at": "s3cret", "tries": 3})
        log.info("of no run")
        log.removeHandler(handler)
        handler.close()
    about, other = collector.logs
    assert about.text == "run ***"
    assert about.severity == "WARNING"
    assert (about.trace, about.span) == (CONTEXT.trace_id, CONTEXT.span_id)
    assert about.attributes["run"] == "fl-1"
    assert about.attributes["at"] == "***"
    assert about.attributes["tries"] == 3
    assert other.trace == ""
    assert not any(b"s3cret" in it for it in collector.raw)
