"""What has happened in a campaign so far, gathered from its events: what figures, report and tracker are drawn from.

A resumed campaign tells its earlier generations and baselines again. Adding an event twice changes nothing: generations
are kept by stage and number, baselines by name.
"""

from typing import Any

from dashboards.mlflow_store import redacted
from search.events import (
    BaselineFinished,
    CampaignFailed,
    CampaignFinished,
    CampaignStarted,
    CampaignStopped,
    Event,
    GenerationFinished,
    HeldoutFinished,
    Improved,
)

BASELINE = "baseline/"


class Record:
    """The state of a campaign as its events tell it."""

    def __init__(self) -> None:
        self.started: CampaignStarted | None = None
        self.generations: dict[tuple[str, int], GenerationFinished] = {}
        self.baselines: dict[str, BaselineFinished] = {}
        self.improved: Improved | None = None
        self.report: dict[str, Any] | None = None
        self.finished: CampaignFinished | None = None
        self.status = "waiting"
        self.reason: str | None = None

    def add(self, event: Event) -> None:
        match event:
            case CampaignStarted():
                self.started, self.status, self.reason, self.finished = event, "running", None, None
            case GenerationFinished():
                self.generations[event.stage, event.generation] = event
            case BaselineFinished():
                self.baselines[event.name] = event
            case Improved():
                self.improved = event
            case HeldoutFinished():
                self.report = event.report
            case CampaignFinished():
                self.finished, self.status = event, "finished"
            case CampaignStopped():
                self.status, self.reason = "stopped", redacted(event.reason)
            case CampaignFailed():
                self.status, self.reason = "failed", redacted(event.reason)

    def of_stage(self, stage: str) -> list[GenerationFinished]:
        """Generations of one stage, in order."""
        return [g for (s, _), g in sorted(self.generations.items()) if s == stage]

    @property
    def stages(self) -> list[str]:
        """Stages that have finished a generation, in the order in which they ran; searches of baselines left out."""
        return list(dict.fromkeys(s for s, _ in self.generations if not s.startswith(BASELINE)))

    @property
    def winning_stage(self) -> str | None:
        """The stage that found the reported winner; before there is a report, the stage with the best score so far."""
        if self.report is None:
            return max(self.stages, key=lambda s: self.of_stage(s)[-1].best, default=None)
        frequency = self._winner()["frequency"]
        methods = {s["name"]: s["method"] for s in self.started.campaign["stages"]}
        wanted = frequency["method"], _listed(frequency.get("factor"))
        found = (s for s in self.stages if (methods.get(s), list(self.best_generation(s).best_factors)) == wanted)
        return next(found, None)

    def baseline_scores(self) -> dict[str, float]:
        """Search scores of what the winner is compared with."""
        scores = {name: b.score for name, b in self.baselines.items()}
        for row in [] if self.report is None else self.report["rows"]:
            if row["name"] != "winner" and row["search_score"] is not None:
                scores[row["name"]] = row["search_score"]
        return scores

    def winner_factors(self) -> list[float]:
        """One factor per layer; empty when the winner has none (the unchanged model), or there is none yet."""
        if self.report is not None:
            return _listed(self._winner()["frequency"].get("factor"))
        stage = self.winning_stage
        return [] if stage is None else list(self.best_generation(stage).best_factors)

    def _winner(self) -> dict[str, Any]:
        return next(r for r in self.report["rows"] if r["name"] == "winner")

    def best_generation(self, stage: str) -> GenerationFinished | None:
        """The first generation that holds the stage's best individual."""
        return max(self.of_stage(stage), key=lambda g: (g.best, -g.generation), default=None)


def _listed(factor: Any) -> list[float]:
    return list(factor) if isinstance(factor, (list, tuple)) else []
