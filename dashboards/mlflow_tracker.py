"""A campaign in MLflow: the parent run with its metrics per generation, and a child run per stage and per baseline.

Only explicit run ids are used: a run that the user has active in this process is never touched.

The campaign's run has the resolved campaign, flattened, as params. At step = generation: best, mean, std, worst,
failed, infeasible, evaluations, tokens, tokens_per_second (under `<stage>/` where there are several stages). Once:
`baseline/<name>`, and the winner's held-out scores, gains and guard, and the cost. Its data sets are the example sets,
with the beginning of their hash as digest.

The child runs share names with it and with each other, so that MLflow's comparison sets the winner beside each
baseline: params `method`, `factor`, …; metrics `search_score`, `heldout_score`, `heldout_low`, `heldout_high`,
`guard_loss`.
"""

import json
import math
import time
from typing import Any

from dashboards import figures
from dashboards.artifacts import LONGEST_PARAM, campaign_yaml, csv_text, flattened, individuals_csv, note, text_of
from dashboards.findings import gain, model_name, row, table
from dashboards.gallery import drawn
from dashboards.mlflow_runs import PARENT, CampaignRuns, is_refusal
from dashboards.mlflow_store import TrackingError, connect, open_experiment, redacted, resolve_uri, restrained
from dashboards.outbox import Artifact, EndRun, Inputs, Metrics, OpenRun, Operation, Outbox, Params, Tags
from dashboards.record import BASELINE, Record
from dashboards.throughput import Throughput
from search.events import (
    BaselineFinished,
    CampaignFailed,
    CampaignFinished,
    CampaignStarted,
    CampaignStopped,
    EvaluationFinished,
    Event,
    GenerationFinished,
    HeldoutFinished,
    Improved,
)

LONGEST_DIGEST = 36  # characters that MLflow takes
AWAY_FROM_SEARCH = ("heldout", "guard")  # stages whose evaluations have totals of their own


class MlflowTracker:
    """A listener that writes a campaign to MLflow. When MLflow goes away later, the campaign goes on (see `Outbox`).

    Args:
        uri: any MLflow tracking URI; None: MLFLOW_TRACKING_URI, else `mlflow.db` in the working directory.
        experiment: its name; None: `ropewalk/<model id>`.

    Raises:
        TrackingError: no MLflow answers at the URI, or the experiment cannot be used; here or at the campaign's start.
    """

    def __init__(self, uri: str | None = None, experiment: str | None = None):
        self.uri, self.experiment = resolve_uri(uri), experiment
        self.client = connect(self.uri)
        self.experiment_id: str | None = None
        if experiment is not None:
            self.experiment_id = self._open_experiment(experiment)
        self.record = Record()
        self.runs: CampaignRuns | None = None
        self.outbox: Outbox | None = None
        self.throughput: Throughput | None = None
        self._opened: set[str] = set()

    @property
    def run_id(self) -> str | None:
        """MLflow's id of the campaign's run, once it has started."""
        return None if self.runs is None else self.runs.ids[PARENT]

    @property
    def undelivered(self) -> tuple[Operation, ...]:
        """What MLflow has not taken."""
        return () if self.outbox is None else (*self.outbox.waiting, *(op for op, _ in self.outbox.refused))

    def __call__(self, event: Event) -> None:
        self.record.add(event)
        match event:
            case CampaignStarted():
                self._start(event)
            case EvaluationFinished() if event.stage not in AWAY_FROM_SEARCH:
                self.throughput.add(event.evaluations, event.tokens)
            case GenerationFinished():
                self._generation(event)
            case BaselineFinished():
                self._baseline(event)
            case Improved():
                self._put(_json(PARENT, "profile.json", event.profile))
            case HeldoutFinished():
                self._heldout(event.report)
            case CampaignFinished():
                self._finish(event)
            case CampaignStopped():
                self._end("KILLED", "stopped")
            case CampaignFailed():
                self._end("FAILED", "failed")

    def _open_experiment(self, name: str) -> str:
        with restrained():
            return open_experiment(self.client, self.uri, name)

    def _put(self, *operations: Operation) -> None:
        self.outbox.put(*operations)

    def _start(self, event: CampaignStarted) -> None:
        name = self.experiment or f"ropewalk/{model_name(event)}"
        self.experiment_id = self.experiment_id or self._open_experiment(name)
        folder = redacted(event.folder)
        self.runs = CampaignRuns(self.client, self.experiment_id, event.campaign_id, folder, event.resumed)
        try:
            with restrained():
                self.runs.open_parent(_start_tags(event))
        except Exception as error:  # nothing has been searched yet: better to stop than to search unseen
            reason = redacted(" ".join(str(error).split()))[:300]
            raise TrackingError("tracking.uri", redacted(self.uri), f"an MLflow that takes runs ({reason})") from error
        self.outbox = Outbox(self.runs, is_refusal, redacted(self.uri))
        self.throughput = Throughput(event.completed_evaluations, event.planned_evaluations)
        self._put(
            Params(PARENT, tuple(flattened(event.campaign).items())),
            Artifact(PARENT, "campaign.yaml", campaign_yaml(event.campaign).encode()),
            Tags(PARENT, (("mlflow.note.content", f"Campaign **{event.campaign_id}** is running."),)),
            *(_inputs(name, examples) for name, examples in event.examples.items()),
        )

    def _open(self, key: str, name: str, frequency: dict[str, Any]) -> None:
        """The child run of a stage or baseline, opened once, with its frequency as params as far as it is known."""
        if key not in self._opened:
            self._opened.add(key)
            self._put(OpenRun(key, name, (("ropewalk.model", model_name(self.record.started)),)))
        params = {k: text_of(v) for k, v in frequency.items() if v is not None}
        if short := tuple((k, v) for k, v in params.items() if len(v) < LONGEST_PARAM):
            self._put(Params(key, short))

    def _metrics(self, run: str, values: dict[str, float | None], step: int = 0) -> None:
        """Values that are not finite numbers are left out: MLflow would draw them as points."""
        finite = tuple((k, float(v)) for k, v in values.items() if v is not None and math.isfinite(v))
        if finite:
            self._put(Metrics(run, finite, step, time.time_ns() // 1_000_000))

    def _generation(self, event: GenerationFinished) -> None:
        started = self.record.started
        stages = started.campaign["stages"]
        values = {
            "best": event.best,
            "mean": event.mean,
            "std": event.std,
            "worst": event.worst,
            "failed": event.failed,
            "infeasible": event.infeasible,
            "evaluations": event.evaluations,
            "tokens": event.tokens,
        }
        if event.evaluations > started.completed_evaluations:  # told again after a resume, it has no speed
            values["tokens_per_second"] = self.throughput.tokens_per_second
        key = event.stage if event.stage.startswith(BASELINE) else f"stage/{event.stage}"
        self._open(key, event.stage.removeprefix(BASELINE), {})
        path = f"individuals/{event.stage}/generation_{event.generation:04d}.csv"
        self._put(Artifact(PARENT, path, individuals_csv(event).encode()))
        self._metrics(key, values, event.generation)
        if not event.stage.startswith(BASELINE):
            prefix = f"{event.stage}/" if len(stages) > 1 else ""
            self._metrics(PARENT, {prefix + k: v for k, v in values.items()}, event.generation)

    def _baseline(self, event: BaselineFinished) -> None:
        key = BASELINE + event.name
        self._open(key, event.name, event.profile["frequency"])
        self._metrics(key, {"search_score": event.score, "search_evaluations": event.evaluations})
        self._metrics(PARENT, {key: event.score})
        if event.table:
            lines = [("factor", "score"), *((f, "" if s is None else s) for f, s in event.table)]
            self._put(Artifact(PARENT, f"sweeps/{event.name}.csv", csv_text(lines).encode()))

    def _heldout(self, report: dict[str, Any]) -> None:
        stage = self.record.winning_stage
        for r in report["rows"]:
            own = BASELINE + r["name"] if r["name"] != "winner" else None if stage is None else f"stage/{stage}"
            if own is not None:
                self._open(own, own.split("/", 1)[1], r["frequency"])
                self._metrics(own, {**_scores(r), "search_evaluations": r["evaluations"]})
        winner = row(report, "winner")
        self._put(Params(PARENT, (("winner.method", winner["frequency"]["method"]),)))
        self._metrics(PARENT, {**_scores(winner), **_interval("gain_over_best_linear", gain(report))})
        headers, rows = table(report)
        columns = {"columns": list(headers), "data": [list(r) for r in rows]}
        logged = json.dumps([{"path": "heldout/table.json", "type": "table"}])
        self._put(
            _json(PARENT, "heldout/report.json", report),
            _json(PARENT, "heldout/table.json", columns),
            Artifact(PARENT, "heldout/table.csv", csv_text([headers, *rows]).encode()),
            Tags(PARENT, (("mlflow.loggedArtifacts", logged),)),  # as log_table does, so that MLflow shows a table
        )

    def _finish(self, event: CampaignFinished) -> None:
        cost = event.result["cost"]
        self._put(_json(PARENT, "profile.json", event.profile), _json(PARENT, "result.json", event.result))
        self._metrics(PARENT, {f"cost_{name}": value for name, value in cost.items()})
        self._end("FINISHED", "finished")

    def _end(self, status: str, word: str) -> None:
        """Close all runs, also when a figure cannot be drawn."""
        if self.outbox is None:
            return
        try:
            for path, figure in drawn(self.record).items():
                self._put(Artifact(PARENT, f"figures/{path}.png", figures.png(figure)))
        finally:
            self._close(status, word)

    def _close(self, status: str, word: str) -> None:
        reason = self.record.reason
        tags = {"ropewalk.status": word, "mlflow.note.content": note(self.record)}
        if reason or self.record.started.resumed:  # a campaign that was stopped before has a reason to overwrite
            tags["ropewalk.reason"] = reason or ""
        self._put(
            Tags(PARENT, tuple(tags.items())),
            *(EndRun(key, status) for key in sorted(self._opened)),
            EndRun(PARENT, status),
        )
        self.outbox.close()


def _start_tags(event: CampaignStarted) -> dict[str, str]:
    tags = {f"ropewalk.version.{name}": v for name, v in event.versions.items() if v and name != "code_revision"}
    tags |= {
        "ropewalk.version": event.versions.get("ropewalk") or "",
        "ropewalk.model": model_name(event),
        "ropewalk.model_fingerprint": event.fingerprint,
        "ropewalk.status": "running",
        "mlflow.source.name": "ropewalk",
    }
    if revision := event.versions.get("code_revision"):
        tags |= {"ropewalk.code_revision": revision, "mlflow.source.git.commit": revision.partition("+")[0]}
    return tags


def _scores(r: dict[str, Any]) -> dict[str, float | None]:
    """The metrics of a report row, named alike in every run; a row that failed has its search score only."""
    if "failed" in r:
        return {"search_score": r["search_score"]}
    loss = r["guard"]["loss"]
    return {
        "search_score": r["search_score"],
        **_interval("heldout", r["heldout"]),
        **_interval("gain_over_identity", r["gain_over_identity"]),
        "guard_score": r["guard"]["score"],
        "guard_loss": None if loss is None else loss["score"],
    }


def _interval(name: str, value: dict[str, float] | None) -> dict[str, float]:
    return {} if value is None else {f"{name}_{part}": value[part] for part in ("score", "low", "high")}


def _inputs(name: str, examples: dict[str, Any]) -> Inputs:
    """An example set as a data set, named by its task and its part in the campaign; its hash is the digest."""
    facts = json.dumps(examples, ensure_ascii=False, sort_keys=True)
    return Inputs(PARENT, f"{examples['task']} ({name})", name, examples["hash"][:LONGEST_DIGEST], facts)


def _json(run: str, path: str, data: Any) -> Artifact:
    return Artifact(run, path, (json.dumps(data, indent=2, ensure_ascii=False) + "\n").encode())
