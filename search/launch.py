"""Wires a campaign to its workers, its folder and everybody who watches: the only place that knows all of them."""

import json
import re
import sys
from collections.abc import Callable
from typing import Any

from transformers.utils.logging import disable_progress_bar

from dashboards.console import ConsoleProgress
from dashboards.mlflow_tracker import MlflowTracker
from dashboards.report import HtmlReport
from fitness.store import ExampleStore
from search import checkpoint
from search.campaign import LONGEST_NAME, NAME, Campaign
from search.checkpoint import NAME as CHECKPOINT
from search.errors import CampaignError
from search.journal import Journal
from search.preparation import prepare
from search.results import NAME as RESULT
from search.runner import Runner
from search.storage import Storage
from workers.evaluator import Evaluator, LocalEvaluator
from workers.ray_evaluator import RayEvaluator
from workers.source import cache_folder


def launch(campaign: Campaign, campaign_id: str, *, resume: bool, stop: Callable[[], bool]) -> dict[str, Any]:
    """Check everything, start the workers, run the campaign; returns the content of `result.json`.

    Raises:
        FieldError: bad input of any kind, before a worker starts.
        SearchError: the campaign cannot go on.
        CapacityError: the cluster cannot host the workers.
        Interrupted: asked to stop, resumable.
    """
    if not re.fullmatch(NAME, campaign_id) or len(campaign_id) > LONGEST_NAME:
        allowed = f"at most {LONGEST_NAME} letters, digits, dots, dashes and underscores, a letter or digit first"
        raise CampaignError("--id", campaign_id, allowed)
    disable_progress_bar()  # of loading weights: it would draw over the campaign's own
    prepared = prepare(campaign, ExampleStore(cache_folder() / "examples"))
    storage = Storage(campaign.storage, campaign_id)
    if storage.exists(CHECKPOINT) and not resume:
        raise CampaignError("--id", campaign_id, f"a new id, or --resume to go on with the campaign in {storage.url}")
    finished = _finished(campaign, storage)
    if finished is not None:
        return finished
    checkpoint.load(storage, prepared.identity())  # one of another campaign is refused before a worker starts
    tracker = MlflowTracker(campaign.tracking.uri, campaign.tracking.experiment)
    listeners = [Journal(storage), tracker, HtmlReport(storage.url), ConsoleProgress()]
    with _evaluator(campaign) as evaluator:
        return Runner(prepared, campaign_id, storage, listeners, stop).run(evaluator, resume=resume)


def _finished(campaign: Campaign, storage: Storage) -> dict[str, Any] | None:
    """The result of this very campaign if its folder holds one already."""
    if not storage.exists(RESULT):
        return None
    result = json.loads(storage.read(RESULT))
    if result["campaign_hash"] != campaign.hash:
        raise CampaignError("campaign", campaign.name, f"the campaign that finished in {storage.url}, or another --id")
    print(f"{storage.url}: finished before; {RESULT} and profile.json are there", file=sys.stderr)
    return result


def _evaluator(campaign: Campaign) -> Evaluator:
    if campaign.workers.kind == "local":
        return LocalEvaluator(campaign.model, threads=campaign.workers.threads, chunk=campaign.workers.chunk)
    return RayEvaluator(campaign.model, campaign.workers)
