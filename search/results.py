"""What a campaign leaves behind as data: provenance of its profile, the report, `result.json`. Nothing is run here."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ropewalk import Profile
from search import heldout
from search.heldout import Row
from search.preparation import Prepared
from search.scoreboard import Outcome
from search.seeds import derive

NAME = "result.json"
SCHEMA = "ropewalk/result/v1"


@dataclass(frozen=True)
class Results:
    """The results of one prepared campaign.

    Attributes:
        campaign_id: the name of its folder, which its profile gets too.
        versions: of the code that it runs on.
    """

    prepared: Prepared
    campaign_id: str
    versions: dict[str, str | None]

    def profile(self, found: Profile, score: float, **more: Any) -> Profile:
        """A profile that the search found, as it goes on disk: with the campaign's name and its provenance."""
        campaign = self.prepared.campaign
        examples = self.prepared.describe_sets()["search"]
        provenance = {
            "campaign": self.campaign_id,
            "campaign_hash": campaign.hash,
            "ropewalk_version": self.versions["ropewalk"],
            "code_revision": self.versions["code_revision"],
            "seed": campaign.seed,
            "search": {"score": score, "metric": campaign.fitness.metric, **examples},
            **more,
        }
        return Profile(
            self.campaign_id, self.prepared.shape, found.target_length, found.frequency, found.distance, provenance
        )

    def final_profile(self, found: Profile, score: float, report: dict[str, Any]) -> Profile:
        """The winner with what the report says about it and its rivals."""
        winner, *others = report["rows"]
        return self.profile(
            found,
            score,
            heldout={"score": winner.get("heldout"), **self.prepared.describe_sets()["heldout"]},
            guard=winner.get("guard"),
            baselines={row["name"]: row.get("heldout") for row in others},
        )

    def report(
        self,
        rows: Sequence[Row],
        outcomes: dict[str, Sequence[Outcome]],
        refusals: dict[str, int],
        without: dict[str, str],
    ) -> dict[str, Any]:
        """The held-out report.

        Args:
            outcomes: of the rows on the sets `heldout` and `guard`.
            refusals: how many candidates there were, and how many of them the guard refused.
            without: baselines that have no row, with the reason.
        """
        campaign, described = self.prepared.campaign, self.prepared.describe_sets()
        tolerance = campaign.guard.tolerance
        return {
            "model": self.prepared.shape.id,
            "metric": campaign.fitness.metric,
            "confidence": heldout.CONFIDENCE,
            **described["heldout"],
            "task": campaign.fitness.model_dump(mode="json"),
            "guard": {**described["guard"], "tolerance": tolerance, "enforced": campaign.guard.enforce, **refusals},
            "without": without,
            "rows": heldout.table(
                rows,
                outcomes["heldout"],
                outcomes["guard"],
                measures={name: self.prepared.measure(name) for name in outcomes},
                tolerance=tolerance,
                seed=derive(campaign.seed, "bootstrap"),
            ),
        }

    def result(self, report: dict[str, Any], cost: dict[str, Any]) -> dict[str, Any]:
        """The content of `result.json`."""
        winner, *others = report["rows"]
        return {
            "schema": SCHEMA,
            "campaign": self.campaign_id,
            "campaign_hash": self.prepared.campaign.hash,
            "winner": winner,
            "baselines": {row["name"]: row for row in others},
            "report": {key: value for key, value in report.items() if key != "rows"},
            "cost": cost,
            "versions": self.versions,
        }
