"""Work of the controller beside its engine: the retention of finished data, backups as processes of
their own, and the end of sandboxes whose programs were killed.

Without a controller the next program that uses an interpreter does the same.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from fleetctl.common.errors import FleetctlError, NotFound, Refused, Unavailable
from fleetctl.common.text import escape_lines
from fleetctl.controllers.kinds.retention_decision import limits_of
from fleetctl.engine.kinds.backups import BackupResult
from fleetctl.engine.shared.engine_state import EngineSettings
from fleetctl.providers.programs import run_program
from fleetctl.retention.survey import SortReport, build_report, survey_items
from fleetctl.specs.kinds.registry import parse_spec
from fleetctl.specs.kinds.settings import NAME, SettingsSpec
from fleetctl.specs.values.quantities import parse_duration
from fleetctl.stores.read.reader import Reader

# For records of deleted objects, where the settings have no value.
VARIABLE = "FLEETCTL_KEEP_DELETED"

# A state of gigabytes over a slow line; a longer one is ended, and reported as failed.
DEADLINE_S = 3_600.0

log = logging.getLogger("fleetctl.daemon")


def engine_settings() -> EngineSettings:
    """Returns the settings. Raises Refused for a value that is not a span of time."""
    value = os.environ.get(VARIABLE)
    if not value:
        return EngineSettings()
    try:
        return EngineSettings(keep_deleted_s=parse_duration(value))
    except ValueError as error:
        raise Refused(
            f"{VARIABLE} is `{value}`, which is not a duration: {error}",
            hint=f"{VARIABLE}=30d, or 0 to keep nothing",
        ) from error


def predict_retention(home: Path, now_s: float) -> Sequence[SortReport]:
    """Returns the result of a round now. Raises NotFound where there is no store, and Refused for
    settings of a newer version.
    """
    with Reader(home) as reader:
        if not reader.store_id():
            raise NotFound(f"there is no store in `{home}` yet", hint="the first `apply` makes one")
        row = reader.resource("Settings", NAME)
    spec = SettingsSpec()
    if row is not None and row.spec:
        try:
            read = parse_spec("Settings", row.spec)
        except ValueError as error:
            raise Refused(
                "the settings cannot be read by this version, so they have no effect",
                hint="use the version of fleetctl that wrote them, or a later one",
            ) from error
        assert isinstance(read, SettingsSpec)
        spec = read
    limits = limits_of(spec.retention, engine_settings().keep_deleted_s)
    return build_report(survey_items(home, limits, now_s))


async def make_backup(
    home: Path,
    to: str,
    keep: int,
    variables: Mapping[str, str],
) -> BackupResult:
    """Makes a backup. variables: added to the environment of ours. Raises Unavailable; then there
    is no new valid backup.
    """
    # A directory that does not exist yet is one all the same.
    where = to if "://" in to or to.endswith("/") else f"{to}/"
    words = ["backup", where, "--keep", str(keep), "-o", "json"]
    try:
        answer = await run_program(
            [sys.executable, "-P", "-m", "fleetctl.cli.main", *words],
            deadline_s=DEADLINE_S,
            cwd=home,
            env={**os.environ, **variables, "FLEETCTL_HOME": str(home)},
        )
    except TimeoutError as error:
        raise Unavailable(
            f"it took longer than {DEADLINE_S / 3600:.0f} h, and was ended"
        ) from error
    except OSError as error:
        raise Unavailable(f"its process cannot be started: {error.strerror}") from error
    if answer.code:
        told, hint = _parse_errors(answer.errors)
        raise Unavailable(told, hint=hint)
    try:
        written = json.loads(answer.out)
        dropped = len(written["dropped"])
        remark = str(written["remark"])
        return BackupResult(str(written["file"]), int(written["bytes"]), dropped, remark)
    except (ValueError, KeyError, TypeError) as error:
        raise Unavailable("its process ended without a word of what it wrote") from error


def _parse_errors(errors: bytes) -> tuple[str, str]:
    """Returns (error, hint) from the output of our own command line."""
    lines = escape_lines(errors.decode("utf-8", "replace"))
    told = [it.removeprefix("error: ") for it in lines if it.startswith("error: ")]
    hints = [it.removeprefix("hint: ") for it in lines if it.startswith("hint: ")]
    last = lines[-1] if lines else "its process failed without a word"
    return (told[0] if told else last), (hints[0] if hints else "")


async def sweep_forever(home: Path, *, every_s: float) -> None:
    from fleetctl.wiring.interpreters import sweep_interpreters

    while True:
        try:
            for run in await sweep_interpreters(home):
                log.warning("sandbox of a killed program ended", extra={"sandbox": run.name})
        except FleetctlError as error:
            log.warning("sweep refused", extra={"error": str(error)})
        await asyncio.sleep(every_s)
