"""The campaign file: what to search, on which model and examples, with what budget, and what to compare with.

`load` reads YAML strictly: a key that is not known is refused with the nearest known one, every error names the
field, its value and what is allowed. `--set stages.0.population=8` changes a field before validation. What comes out
is resolved: every default is written down, so the saved copy repeats the campaign.
"""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from fitness.composite import Goal
from fitness.tasks import SIZES
from search.complaints import explain
from search.errors import CampaignError
from search.genetic import GeneticSettings
from search.overrides import override
from search.spaces import CurveSpace
from workers.spec import ModelSpec, PoolSpec

SCHEMA = "ropewalk/campaign/v1"
CurveMethod = Literal["linear", "ntk", "dynamic_ntk", "yarn"]
Baseline = Literal["identity", "linear", "ntk", "dynamic_ntk", "yarn", "ramp"]
RESERVED = ("identity", "heldout", "guard")  # what events and reports call other things than stages
NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"
LONGEST_NAME = 100


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Early(_Section):
    """Another metric to select by at first: a smooth one shows a slope where hardly any answer is right yet.

    Attributes:
        metric: read off the same scores, so that it costs nothing.
        generations: that are selected by it, the first population included. Then everything seen is ranked anew by the
            campaign's metric, which alone decides what is reported.
    """

    metric: Literal["likelihood", "perplexity"] = "likelihood"
    generations: int = Field(ge=1)


class GeneticStage(GeneticSettings):
    """A stage that searches one factor per layer, for one frequency method, on a curve."""

    kind: Literal["genetic"] = "genetic"
    name: str = Field("genetic", pattern=r"^[a-z0-9][a-z0-9_-]*$")
    method: CurveMethod = "linear"
    space: CurveSpace = CurveSpace()
    early: Early | None = None

    @model_validator(mode="after")
    def _identity_is_reachable(self) -> "GeneticStage":
        low, high = self.space.minimum, self.space.maximum
        if "identity" in self.seeds and not low <= 1.0 <= high:
            raise ValueError(f"the range [{low}, {high}] excludes factor 1, so identity cannot be among the seeds")
        return self


class Heldout(_Section):
    """Fresh examples of the same task for the final report."""

    contexts: int = Field(24, ge=2)


class Guard(_Section):
    """The same task at a short length, where a profile must not do harm.

    Attributes:
        length: tokens; by default a quarter of the target length, at most the trained length.
        contexts: of the report, and as many others of the search if it is guarded.
        tolerance: a profile that loses more than this of the metric against the unchanged model is harmful.
        enforce: the search asks every candidate too, on short examples of its own, before it is scored at length: a
            harmful one is infeasible. It has no score, is no parent and cannot win. Else harm is only reported.
    """

    length: int | None = Field(None, ge=1)
    contexts: int = Field(12, ge=2)
    tolerance: float = Field(0.02, ge=0, allow_inf_nan=False)
    enforce: bool = False


class Tracking(_Section):
    """MLflow. `uri`: any tracking URI; by default MLFLOW_TRACKING_URI, else `mlflow.db` in the working directory."""

    uri: str | None = None
    experiment: str | None = None


class Campaign(_Section):
    """A whole run. See `campaigns/quickstart.yaml` for one with comments."""

    schema_: Literal["ropewalk/campaign/v1"] = Field(SCHEMA, alias="schema")
    name: str = Field(pattern=NAME, max_length=LONGEST_NAME)
    seed: int = Field(0, ge=0, lt=2**63)
    model: ModelSpec
    target_length: int = Field(ge=2)
    fitness: Goal
    heldout: Heldout = Heldout()
    guard: Guard = Guard()
    stages: Annotated[tuple[GeneticStage, ...], Field(min_length=1)]
    baselines: tuple[Baseline, ...] = get_args(Baseline)
    workers: PoolSpec = PoolSpec()
    tracking: Tracking = Tracking()
    storage: str = Field("runs", min_length=1)

    @model_validator(mode="after")
    def _consistent(self) -> "Campaign":
        names = [stage.name for stage in self.stages]
        if len(set(names)) < len(names):
            raise CampaignError("stages", names, "stages of different names")
        if taken := next((name for name in names if name in RESERVED), None):
            raise CampaignError("stages", taken, f"any name but {', '.join(RESERVED)}")
        if len(set(self.baselines)) < len(self.baselines):
            raise CampaignError("baselines", list(self.baselines), "each name once")
        length = self.fitness.length
        if length is not None and length > self.target_length:
            raise CampaignError("fitness.length", length, f"at most target_length {self.target_length}")
        for i, stage in enumerate(self.stages):
            if stage.early is not None:
                self._check_early(f"stages.{i}.early", stage, stage.early)
        return self

    def _check_early(self, field: str, stage: GeneticStage, early: Early) -> None:
        if self.fitness.scoring != "teacher_forcing":
            raise CampaignError(
                field, early.metric, "nothing but with scoring: teacher_forcing, which gives likelihoods"
            )
        if early.metric == self.fitness.metric:
            raise CampaignError(f"{field}.metric", early.metric, "another metric than fitness.metric")
        if early.generations > stage.generations:
            allowed = f"at most {stage.generations}, the stage's generations"
            raise CampaignError(f"{field}.generations", early.generations, allowed)

    @property
    def budget(self) -> int:
        """Evaluations of all stages together, among which the winner is chosen; every baseline may use as many."""
        return sum(stage.evaluations for stage in self.stages)

    def to_dict(self) -> dict[str, Any]:
        return self.model_dump(mode="json", by_alias=True)

    def to_yaml(self) -> str:
        return yaml.safe_dump(self.to_dict(), sort_keys=False, allow_unicode=True)

    @property
    def hash(self) -> str:
        """SHA-256 of what decides the result: not of where it runs, is stored or tracked."""
        decisive = {k: v for k, v in self.to_dict().items() if k not in ("workers", "tracking", "storage")}
        return hashlib.sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()


def load(path: str | Path, overrides: Sequence[str] = ()) -> Campaign:
    """Read, override and validate a campaign file.

    Args:
        path: a YAML file.
        overrides: `key=value` with a dotted key, the value read as YAML.

    Raises:
        CampaignError: the file or an override is missing, malformed or not allowed.
    """
    path = Path(path)
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CampaignError("campaign", str(path), f"a readable YAML file ({error.strerror})") from error
    except (yaml.YAMLError, ValueError) as error:  # ValueError: bytes that are no UTF-8, a date that does not exist
        raise CampaignError("campaign", str(path), f"valid YAML ({' '.join(str(error).split())})") from error
    if not isinstance(data, dict):
        raise CampaignError("campaign", type(data).__name__, "a mapping of fields to values")
    for text in overrides:
        override(data, text)
    return parse(data)


def parse(data: dict[str, Any]) -> Campaign:
    """Validate a campaign given as plain data. Fitness whose size is not given (`SIZES`) is at the target length."""
    fitness = data.get("fitness")
    if isinstance(fitness, dict) and all(fitness.get(size) is None for size in SIZES):
        data = {**data, "fitness": {**fitness, "length": data.get("target_length")}}
    try:
        return Campaign.model_validate(data)
    except ValidationError as error:
        raise explain(error, Campaign) from error
