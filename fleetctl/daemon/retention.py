"""The retention of finished data: settings from the controller's environment, and the result of a
round of retention.

Called by serve.py, and by `fleetctl gc --dry-run`, which needs no controller.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from fleetctl.common.errors import NotFound, Refused
from fleetctl.controllers.kinds.retention.limits import limits_of
from fleetctl.engine.shared.engine_settings import EngineSettings
from fleetctl.retention.report import SortReport, build_report
from fleetctl.retention.survey import survey_items
from fleetctl.specs.kinds.registry import parse_spec
from fleetctl.specs.kinds.settings import NAME, SettingsSpec
from fleetctl.specs.values.quantities import parse_duration
from fleetctl.stores.read.reader import Reader

# For records of deleted objects, where the settings have no value.
VARIABLE = "FLEETCTL_KEEP_DELETED"


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
