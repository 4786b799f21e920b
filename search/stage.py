"""A genetic stage at work: genomes become profiles, profiles are scored, every generation is saved and told.

The straight-line baseline is the same stage on a curve of two control points.
"""

from collections.abc import Callable
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
            proposals = self.genetic.ask()
            outcomes = board.score([self.profile(p.genome) for p in proposals], self.label)
            if self.genetic.generation < 0 and all(o.score is None for o in outcomes):
                reasons = sorted({o.reason for o in outcomes if o.reason})
                raise SearchError(
                    f"stage {self.label}: every candidate of the first generation failed: {'; '.join(reasons)}"
                )
            record = self.genetic.tell(proposals, [o.score for o in outcomes])
            event = self._event(record, proposals, outcomes, board)
            save(event)
            emit(event)
        genome, score = self.genetic.best
        return self.profile(genome), score

    def _event(
        self, record: dict[str, Any], proposals: list[Proposal], outcomes: list[Outcome], board: Scoreboard
    ) -> GenerationFinished:
        space, layers = self.stage.space, self.shape.num_layers
        fresh = {p.genome: (p.origin, o) for p, o in zip(proposals, outcomes, strict=True)}
        kept = [
            (tuple(m), "elite", Outcome(m.fitness.values[0], None))
            for m in self.genetic.population
            if tuple(m) not in fresh
        ]
        individuals = tuple(
            Individual(self.profile(g).hash, g, space.factors(g, layers), o.score, o.reason, origin, o.infeasible)
            for g, origin, o in [*kept, *((g, origin, o) for g, (origin, o) in fresh.items())]
        )
        genome, _ = self.genetic.best
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
        )
