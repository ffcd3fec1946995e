"""Every number that decides whether a rule fires, in one place, overridable by a JSON file."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from etprof.statistics.noise import DRIFT, VARIATION

Share = Annotated[float, Field(ge=0, le=1)]
Ratio = Annotated[float, Field(gt=0)]


class Thresholds(BaseModel):
    """Shares are of `Method::execute`; ratios have no unit."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    norm_share: Share = 0.15
    small_layout_count: Annotated[int, Field(ge=1)] = 10
    small_layout_ns: Annotated[float, Field(gt=0)] = 1e6
    small_layout_total_share: Share = 0.10
    layout_share: Share = 0.30
    slow_convolution_ratio: Ratio = 10.0
    depthwise_share: Share = 0.05
    portable_share: Share = 0.05
    splitting_operator_share: Share = 0.01
    other_share: Share = 0.10
    shift_before_share: Share = 0.50
    shift_after_share: Share = 0.30
    shift_movement_share: Share = 0.40
    accelerated_ratio: Ratio = 1.2
    overhead_share: Share = 0.10
    variation: Share = VARIATION
    drift: Share = DRIFT
