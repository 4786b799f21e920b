"""A campaign from start to end: identity, stages, baselines, held-out report, result; resumable after each generation.

The runner knows one seam to the models (`Evaluator`) and one to everybody who watches (`Listener`). What it writes:
`campaign.yaml` once, `checkpoint.json` after each generation, `profile.json` at each improvement and at the end with
the held-out scores, `result.json` at the end. No file but the journal and `result.json` holds a clock time, so an
interrupted and resumed campaign leaves the same bytes in `profile.json` as an undisturbed one.
"""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from ropewalk import Profile
from search import checkpoint
from search.baselines import ramp_stage, sweep, sweep_factors, why_none
from search.errors import SearchError
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
    Listener,
    generation_from_dict,
    to_dict,
)
from search.guard import Guard
from search.heldout import Row
from search.preparation import Prepared
from search.provenance import versions
from search.results import NAME as RESULT
from search.results import Results
from search.scoreboard import Interrupted, Scoreboard
from search.seeds import derive
from search.stage import StageRun
from search.storage import Storage
from workers.evaluator import Evaluator

RAMP = "baseline/ramp"


class Runner:
    """Runs one prepared campaign in its folder.

    Args:
        prepared: the campaign with its model's shape and example sets.
        campaign_id: the name of its folder.
        storage: the folder.
        listeners: take every event, in order.
        stop: asked often; True stops at the next result, resumable.
    """

    def __init__(
        self,
        prepared: Prepared,
        campaign_id: str,
        storage: Storage,
        listeners: Sequence[Listener],
        stop: Callable[[], bool] = lambda: False,
    ):
        self.prepared, self.campaign, self.shape = prepared, prepared.campaign, prepared.shape
        self.campaign_id, self.storage, self.listeners, self.stop = campaign_id, storage, listeners, stop
        self.results = Results(prepared, campaign_id, versions())
        self.boards: dict[str, Scoreboard] = {}
        self.runs = self._stage_runs()
        self.history: list[GenerationFinished] = []
        self.best: tuple[Profile, float] | None = None
        self.best_label = ""
        self.without: dict[str, str] = {}  # baselines that have no profile to report, with the reason
        self.elapsed_before, self.began = 0.0, time.monotonic()

    def run(self, evaluator: Evaluator, *, resume: bool) -> dict[str, Any]:
        """The content of `result.json`.

        Raises:
            Interrupted: asked to stop; `--resume` goes on.
            CampaignError: the checkpoint belongs to something else.
            SearchError: no candidate can be scored.
        """
        self._open(evaluator, resume)
        try:
            self._search_stages()
            sweeps = self._baselines()
            report = self._heldout(sweeps)
            return self._finish(report)
        except (Interrupted, KeyboardInterrupt):
            self._emit(CampaignStopped("stopped on request; --resume continues it"))
            raise
        except Exception as error:
            self._emit(CampaignFailed(f"{type(error).__name__}: {error}"))
            raise

    def _stage_runs(self) -> dict[str, StageRun]:
        """Every genetic run by label: the stages, and a straight line per stage where that baseline is asked for."""
        stages = {stage.name: stage for stage in self.campaign.stages}
        if "ramp" in self.campaign.baselines:
            alone = len(stages) == 1
            ramps = {RAMP if alone else f"{RAMP}-{name}": ramp_stage(stage) for name, stage in stages.items()}
            stages |= ramps
        return {
            label: StageRun(
                stage, label, self.shape, self.campaign.target_length, derive(self.campaign.seed, "stage", label)
            )
            for label, stage in stages.items()
        }

    def _emit(self, event: Event) -> None:
        for listener in self.listeners:
            listener(event)

    def _open(self, evaluator: Evaluator, resume: bool) -> None:
        fitness, guard = self.campaign.fitness, self.campaign.guard
        for name, examples in self.prepared.sets.items():
            evaluator.register(name, examples)
            self.boards[name] = Scoreboard(
                evaluator,
                name,
                examples,
                measure=self.prepared.measure(name),
                scoring=fitness.scoring,
                keep_scores=name in ("heldout", "guard"),
                emit=(lambda event: None) if name == "feasibility" else self._emit,
                stop=self.stop,
            )
        self.boards["search"].also = sorted({s.early.metric for s in self.campaign.stages if s.early is not None})
        if guard.enforce:
            identity = Profile.identity(self.shape, self.campaign.target_length)
            self.boards["search"].judge = Guard(self.boards["feasibility"], identity, guard.tolerance, fitness.metric)
        self.identity = {**self.prepared.identity(), "model": evaluator.fingerprint}
        state = checkpoint.load(self.storage, self.identity) if resume else None
        if state is not None:
            self._restore(state)
        self.storage.write("campaign.yaml", self.campaign.to_yaml().encode())
        self._emit(
            CampaignStarted(
                campaign_id=self.campaign_id,
                campaign=self.campaign.to_dict(),
                folder=self.storage.url,
                shape=self.prepared.shape_dict(),
                fingerprint=evaluator.fingerprint,
                examples=self.prepared.describe_sets(),
                planned_evaluations=self._planned(),
                resumed=state is not None,
                completed_evaluations=self.boards["search"].evaluations,
                versions=self.results.versions,
            )
        )
        for event in self.history:
            self._emit(event)

    def _planned(self) -> int:
        sweeps = [name for name in self.campaign.baselines if name not in ("identity", "ramp")]
        factors = self._sweep_factors()
        return 1 + sum(run.stage.evaluations for run in self.runs.values()) + len(sweeps) * len(factors)

    def _sweep_factors(self) -> tuple[float, ...]:
        return sweep_factors([stage.space for stage in self.campaign.stages], self.campaign.budget)

    def _save(self) -> None:
        state = {
            "boards": {name: board.state() for name, board in self.boards.items()},
            "stages": {label: run.genetic.state() for label, run in self.runs.items() if run.genetic.generation >= 0},
            "history": [to_dict(event) for event in self.history],
            "best": [self.best[0].to_dict(), self.best[1], self.best_label],
            "elapsed": self._elapsed(),
        }
        checkpoint.save(self.storage, self.identity, state)

    def _restore(self, state: dict[str, Any]) -> None:
        for name, board in state["boards"].items():
            self.boards[name].restore(board)
        for label, genetic in state["stages"].items():
            self.runs[label].genetic.restore(genetic)
        self.history = [generation_from_dict(event) for event in state["history"]]
        profile, score, self.best_label = state["best"]
        self.best = (Profile.from_dict(profile), score)
        self.elapsed_before = state["elapsed"]

    def _elapsed(self) -> float:
        return self.elapsed_before + time.monotonic() - self.began

    def _search_stages(self) -> None:
        identity = Profile.identity(self.shape, self.campaign.target_length)
        (outcome,) = self.boards["search"].score([identity], "identity")
        if outcome.score is None:
            raise SearchError(f"the model cannot be scored: unchanged, it fails: {outcome.reason}")
        self._consider(identity, outcome.score, "the unchanged model: nothing better was found")
        for stage in self.campaign.stages:
            run = self.runs[stage.name]
            label = f"{stage.method}, {stage.space.curve} curve of {stage.space.control_points} points"

            def save(event: GenerationFinished, run: StageRun = run, label: str = label) -> None:
                self._consider(*run.best(self.boards["search"]), label)
                self._remember(event)

            profile, score = run.run(self.boards["search"], self._emit, save)
            self._consider(profile, score, label)

    def _remember(self, event: GenerationFinished) -> None:
        self.history.append(event)
        self._save()

    def _consider(self, profile: Profile, score: float, label: str) -> None:
        """Take a profile as the best so far if it is better, and put it on disk."""
        if self.best is not None and score <= self.best[1]:
            return
        self.best, self.best_label = (profile, score), label
        named = self.results.profile(profile, score)
        self._write_profile(named)
        self._emit(Improved(profile.name, named.to_dict(), score))

    def _write_profile(self, profile: Profile) -> None:
        self.storage.write("profile.json", profile.to_json().encode())

    def _baselines(self) -> list[Row]:
        rows = []
        for name in self.campaign.baselines:
            if name != "identity" and (row := self._ramp() if name == "ramp" else self._sweep(name)):
                rows.append(row)
        return rows

    def _sweep(self, method: str) -> Row | None:
        """The best uniform factor of a method; None when all of them failed."""
        board, factors = self.boards["search"], self._sweep_factors()
        best = sweep(method, factors, self.shape, self.campaign.target_length, board, self._emit)
        self._save()
        if best is None:
            self.without[method] = why_none(method, factors, self.shape, self.campaign.target_length, board)
            return None
        (outcome,) = board.score([best], method)
        label = f"{method}, best of {len(factors)} uniform factors"
        return Row(method, label, best, outcome.score, len(factors))

    def _ramp(self) -> Row | None:
        """The best straight line of all stages; None when all of them failed."""
        rows = []
        for label, run in self.runs.items():
            if not label.startswith(RAMP):
                continue
            try:
                profile, score = run.run(self.boards["search"], self._emit, self._remember)
            except SearchError as error:
                self.without["ramp"] = str(error)
                continue
            rows.append(Row("ramp", f"{run.stage.method}, straight line over the layers", profile, score, 0))
        if not rows:
            return None
        self.without.pop("ramp", None)
        used = sum(len(run.genetic.seen) for label, run in self.runs.items() if label.startswith(RAMP))
        best = replace(max(rows, key=lambda row: row.search_score), evaluations=used)
        self._emit(BaselineFinished("ramp", best.profile.to_dict(), best.search_score, used, ()))
        return best

    def _heldout(self, baselines: list[Row]) -> dict[str, Any]:
        profile, score = self.best
        identity = Profile.identity(self.shape, self.campaign.target_length)
        (plain,) = self.boards["search"].score([identity], "identity")
        used = sum(len(self.runs[stage.name].genetic.seen) for stage in self.campaign.stages)
        rows = [
            Row("winner", self.best_label, profile, score, used),
            Row("identity", "the unchanged model", identity, plain.score, 1),
            *baselines,
        ]
        outcomes = {}
        for name in ("heldout", "guard"):
            outcomes[name] = self.boards[name].score([row.profile for row in rows], name)
            self._save()
        report = self.results.report(rows, outcomes, self._refusals(), self.without)
        self._emit(HeldoutFinished(report))
        return report

    def _refusals(self) -> dict[str, int]:
        """How many of the candidates the guard refused."""
        found = self.boards["search"].outcomes.values()
        return {"candidates": len(found), "infeasible": sum(o.infeasible for o in found)}

    def _finish(self, report: dict[str, Any]) -> dict[str, Any]:
        profile, score = self.best
        final = self.results.final_profile(profile, score, report)
        self._write_profile(final)
        cost = {
            "evaluations": self.boards["search"].evaluations,
            "tokens": sum(board.tokens for board in self.boards.values()),
            "seconds": round(self._elapsed(), 3),
        }
        result = self.results.result(report, cost)
        self._emit(CampaignFinished(result, final.to_dict()))
        # last, since it says that nothing is left to do: not even for those who listen
        self.storage.write(RESULT, json.dumps(result, indent=2, ensure_ascii=False, allow_nan=False).encode())
        return result
