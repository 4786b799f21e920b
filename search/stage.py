"""A genetic stage at work: genomes become profiles, profiles are scored, every generation is saved and told.

The straight-line baseline is the same stage on a curve of two control points.
"""

from collections.abc import Callable
from statistics import fmean, pstdev
from typing import Any

from ropewalk import Profile
from ropewalk.profile import Frequency
from ropewalk.shape import ModelShape
from search.campaign import GeneticStage
from search.errors import SearchError
from search.events import GenerationFinished, Individual, Listener
from search.genetic import Genetic, Proposal
from search.scoreboard import Outcome, Scoreboard
from search.spaces import Genome


class StageRun:
    """One run of a genetic stage.

    Args:
        stage: space, method and operators.
        label: the stage's name in events and profiles, `genetic` or `baseline/ramp`.
        shape: of the model.
        target_length: of the campaign, tokens.
        seed: of this run alone.
    """

    def __init__(self, stage: GeneticStage, label: str, shape: ModelShape, target_length: int, seed: int):
        self.stage, self.label, self.shape, self.target_length = stage, label, shape, target_length
        expected = target_length / shape.trained_length
        self.genetic = Genetic(stage.space, stage, seed, expected)

    def profile(self, genome: Genome) -> Profile:
        factors = self.stage.space.factors(genome, self.shape.num_layers)
        frequency = Frequency(self.stage.method, factor=factors)
        return Profile(self.label, self.shape, self.target_length, frequency)

    def run(
        self, board: Scoreboard, emit: Listener, save: Callable[[GenerationFinished], None]
    ) -> tuple[Profile, float]:
        """Run to the end from wherever the algorithm stands; a generation is saved before it is told to anyone.

        Raises:
            SearchError: every candidate of the first generation failed.
            Interrupted: the campaign was asked to stop.
        """
        while not self.genetic.done:
            if self.stage.early is not None and self.genetic.generation + 1 == self.stage.early.generations:
                self.genetic.rank_anew(lambda genome: self._known(genome, board).score)
            proposals = self.genetic.ask()
            outcomes = board.score([self.profile(p.genome) for p in proposals], self.label)
            if self.genetic.generation < 0 and all(o.score is None for o in outcomes):
                reasons = sorted({o.reason for o in outcomes if o.reason})
                raise SearchError(
                    f"stage {self.label}: every candidate of the first generation failed: {'; '.join(reasons)}"
                )
            metric = self._early_metric(self.genetic.generation + 1)
            values = [o.score if metric is None else o.also.get(metric) for o in outcomes]
            record = self.genetic.tell(proposals, values)
            event = self._event(record, proposals, outcomes, board)
            save(event)
            emit(event)
        return self.best(board)

    def best(self, board: Scoreboard) -> tuple[Profile, float]:
        """The best profile so far by the campaign's metric, whatever the present generation is selected by."""
        genome, score = self._leader(board)
        return self.profile(genome), score

    def _leader(self, board: Scoreboard) -> tuple[Genome, float]:
        if self._early_metric(self.genetic.generation) is None:
            return self.genetic.best
        scored = [(g, s) for g in self.genetic.seen if (s := self._known(g, board).score) is not None]
        return max(scored, key=lambda pair: pair[1])

    def _early_metric(self, generation: int) -> str | None:
        """What a generation is selected by where it is not the campaign's metric."""
        early = self.stage.early
        return early.metric if early is not None and generation < early.generations else None

    def _known(self, genome: Genome, board: Scoreboard) -> Outcome:
        return board.outcomes[self.profile(genome).hash]

    def _event(
        self, record: dict[str, Any], proposals: list[Proposal], outcomes: list[Outcome], board: Scoreboard
    ) -> GenerationFinished:
        space, layers = self.stage.space, self.shape.num_layers
        fresh = {p.genome: (p.origin, o) for p, o in zip(proposals, outcomes, strict=True)}
        kept = [
            (tuple(m), "elite", self._known(tuple(m), board)) for m in self.genetic.population if tuple(m) not in fresh
        ]
        individuals = tuple(
            Individual(self.profile(g).hash, g, space.factors(g, layers), o.score, o.reason, origin, o.infeasible)
            for g, origin, o in [*kept, *((g, origin, o) for g, (origin, o) in fresh.items())]
        )
        genome, _ = self._leader(board)
        metric = self._early_metric(self.genetic.generation)
        if metric is not None:
            record = {**record, **_statistics([self._known(tuple(m), board).score for m in self.genetic.population])}
        return GenerationFinished(
            stage=self.label,
            generation=record["generation"],
            individuals=individuals,
            best=record["best"],
            mean=record["mean"],
            std=record["std"],
            worst=record["worst"],
            failed=record["failed"],
            evaluations=board.evaluations,
            tokens=board.tokens,
            best_genome=genome,
            best_factors=space.factors(genome, layers),
            control_points=space.control_points_of(genome),
            infeasible=sum(o.infeasible for o in outcomes),
            selected_by=metric,
        )


def _statistics(scores: list[float]) -> dict[str, float]:
    return {"best": max(scores), "mean": fmean(scores), "std": pstdev(scores), "worst": min(scores)}
