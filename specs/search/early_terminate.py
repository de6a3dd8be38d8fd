"""`early_terminate` of a W&B sweep: when to stop a trial that does badly. Part of config.py."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Literal

from pydantic import Field, model_validator

from fleetctl.specs.search.wandb_spec import WandbSpec
from fleetctl.specs.values.scalars import Bool, Float, PositiveCount

BANDS_MAX = 100  # of `min_iter`; the last is beyond what any program reports


class EarlyTerminate(WandbSpec):
    """Stops trials that do badly: Hyperband, by `min_iter` or by `max_iter` and `s`."""

    type: Literal["hyperband"] = Field(description="`hyperband`, the only one there is.")
    min_iter: PositiveCount | None = Field(
        default=None, description="Values of the metric before a trial is first compared."
    )
    max_iter: PositiveCount | None = Field(
        default=None, description="Values of the metric that a whole trial reports."
    )
    s: PositiveCount | None = Field(
        default=None, description="How many times it is compared, with `max_iter`."
    )
    eta: Float = Field(
        default=3.0,
        gt=1,
        description="One in `eta` trials goes on; default 3.",
    )
    strict: Bool = Field(
        default=True,
        description="Compare the value of that moment; false: the best so far. Default true.",
    )

    @model_validator(mode="after")
    def _knows_its_bands(self) -> EarlyTerminate:
        if self.max_iter is not None and self.s is None:
            raise ValueError("`max_iter` needs `s`, how many times a trial is compared")
        if self.min_iter is None and self.max_iter is None:
            raise ValueError("it needs `min_iter`, or `max_iter` and `s`")
        if not self.bands:
            raise ValueError(
                f"no trial would be compared: `max_iter` {self.max_iter} divided by `eta` "
                f"{self.eta:g} is less than one value"
            )
        return self

    @property
    def bands(self) -> tuple[int, ...]:
        """Returns the numbers of reports after which a trial is looked at, ascending; `max_iter`
        wins. Found by repeated division and multiplication, whose rounding is that of the library.
        """
        if self.max_iter is not None:
            return tuple(reversed(list(self._downwards(self.max_iter, self.s or 0))))
        return tuple(self._upwards(self.min_iter or 1))

    def _downwards(self, most: int, looks: int) -> Iterator[int]:
        band = float(most)
        for _ in range(looks):
            band /= self.eta
            if band < 1:
                return
            yield int(band)

    def _upwards(self, least: int) -> Iterator[int]:
        band = float(least)
        for _ in range(BANDS_MAX):
            if math.isinf(band):
                return
            yield int(band)
            band *= self.eta
