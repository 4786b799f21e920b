"""A genetic algorithm over layer curves, on DEAP's operators, statistics and hall of fame.

`ask` gives the genomes of the next generation, `tell` takes their scores. Nothing here evaluates, waits or logs, so
the search is the same for any number of actors and any order of completion.

Choices that arXiv 2503.04355 leaves open and that are this project's own: generational replacement with elitism,
tournament selection, simulated binary crossover and polynomial mutation (DEAP's bounded operators) with a bounded
step, children that were ever seen mutated again or replaced by a random genome. A candidate that failed has no
fitness: it never enters the population, since a NaN would silently unsort DEAP's selection.

DEAP's operators draw from Python's global generator. It is borrowed for each call and given back, so what others
draw in the same process cannot change a campaign.
"""

import random
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from deap import base, tools
from pydantic import BaseModel, ConfigDict, Field, model_validator

from search.spaces import CurveSpace, Genome

RETRIES = 20  # further mutations of a child that was seen before, and then as many random genomes
ETA = 10.0  # crowding of DEAP's bounded operators: larger keeps children nearer to their parents


class GeneticSettings(BaseModel):
    """How the population moves. `max_step` bounds the change of one gene by one mutation, in units of the factor."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    population: int = Field(12, ge=4, le=10_000)
    generations: int = Field(5, ge=1, le=100_000)
    elite: int = Field(3, ge=1)
    tournament: int = Field(3, ge=2)
    crossover: float = Field(0.7, ge=0, le=1)
    mutation: float = Field(0.6, ge=0, le=1)
    gene_mutation: float = Field(0.5, gt=0, le=1)
    max_step: float = Field(2.0, gt=0, allow_inf_nan=False)
    seeds: tuple[Literal["identity", "uniform", "ramps"], ...] = ("identity", "uniform", "ramps")

    @model_validator(mode="after")
    def _sizes(self) -> "GeneticSettings":
        for name in ("elite", "tournament"):
            if getattr(self, name) >= self.population:
                raise ValueError(f"{name} {getattr(self, name)} must be below population {self.population}")
        return self

    @property
    def evaluations(self) -> int:
        """The most evaluations that the algorithm asks for."""
        return self.population + self.generations * (self.population - self.elite)


class Maximise(base.Fitness):
    weights = (1.0,)


class Member(list):
    """A genome as DEAP's operators take it."""

    def __init__(self, genome: Sequence[float], score: float | None = None):
        super().__init__(genome)
        self.fitness = Maximise(() if score is None else (score,))


@dataclass(frozen=True)
class Proposal:
    genome: Genome
    origin: str


class Genetic:
    """One run of the algorithm.

    Args:
        space: where genomes live.
        settings: population and operators.
        seed: of this run's own random generator.
        expected: target length / trained length, around which the uniform seeds are spread.
    """

    def __init__(self, space: CurveSpace, settings: GeneticSettings, seed: int, expected: float):
        self.space, self.settings, self.expected = space, settings, expected
        self._random_state = random.Random(seed).getstate()
        self.generation = -1  # the last one told
        self.population: list[Member] = []
        self.hall_of_fame = tools.HallOfFame(max(10, settings.elite))
        self.logbook = tools.Logbook()
        self.seen: dict[Genome, None] = {}
        self.exhausted = False
        self._toolbox = _toolbox(space, settings)
        self._statistics = tools.Statistics(lambda member: member.fitness.values[0])
        for name, function in (("best", np.max), ("mean", np.mean), ("std", np.std), ("worst", np.min)):
            self._statistics.register(name, function)

    @property
    def done(self) -> bool:
        return self.exhausted or self.generation >= self.settings.generations

    def ask(self) -> list[Proposal]:
        """The genomes to evaluate next, all different and none of them seen before. Asking again gives the same."""
        with self._borrowed_random(keep=False):
            return self._first() if self.generation < 0 else self._children()

    def tell(self, proposals: Sequence[Proposal], scores: Sequence[float | None]) -> dict[str, Any]:
        """Take the scores of what `ask` gave (None: the candidate failed) and return this generation's statistics.

        Raises:
            ValueError: no candidate of the first generation has a score.
        """
        with self._borrowed_random(keep=True):  # advances the generator past what `ask` drew
            proposals_again = self._first() if self.generation < 0 else self._children()
        if list(proposals) != proposals_again:
            raise ValueError("scores were told for other genomes than those asked")
        self.seen.update(dict.fromkeys(p.genome for p in proposals))
        new = [Member(p.genome, s) for p, s in zip(proposals, scores, strict=True) if s is not None]
        elite = tools.selBest(self.population, self.settings.elite)
        self.population = elite + new
        if not self.population:
            raise ValueError("every candidate of the first generation failed")
        self.exhausted = not proposals
        self.generation += 1
        self.hall_of_fame.update(self.population)
        record = {k: float(v) for k, v in self._statistics.compile(self.population).items()}
        failed = sum(s is None for s in scores)
        self.logbook.record(generation=self.generation, evaluations=len(proposals), failed=failed, **record)
        return self.logbook[-1]

    def rank_anew(self, scores: Callable[[Genome], float | None]) -> None:
        """From here on by other scores: everything seen is ranked by them, and the best become the population."""
        members = [Member(genome, score) for genome in self.seen if (score := scores(genome)) is not None]
        members.sort(key=lambda member: -member.fitness.values[0])
        self.population = members[: self.settings.population]
        self.hall_of_fame.clear()
        self.hall_of_fame.update(members)

    @property
    def best(self) -> tuple[Genome, float]:
        member = self.hall_of_fame[0]
        return tuple(member), member.fitness.values[0]

    def _first(self) -> list[Proposal]:
        size = self.settings.population
        seeds = dict.fromkeys(self.space.seeds(size, self.expected, self.settings.seeds))
        proposals = [Proposal(g, "seed") for g in list(seeds)[:size]]
        return self._fill(proposals, size)

    def _children(self) -> list[Proposal]:
        proposals: list[Proposal] = []
        known = dict(self.seen)
        wanted = self.settings.population - self.settings.elite
        while len(proposals) < wanted:
            parents = [Member(m) for m in self._toolbox.select(self.population, 2)]
            origin = "mutation"
            if random.random() < self.settings.crossover:
                self._toolbox.mate(*parents)
                origin = "crossover"
            if origin == "mutation" or random.random() < self.settings.mutation:
                self._toolbox.mutate(parents[0])
            child = self.space.repair(tuple(parents[0]))
            for _ in range(RETRIES):
                if child not in known:
                    break
                again = Member(child)
                self._toolbox.mutate(again)
                child, origin = self.space.repair(tuple(again)), "mutation"
            if child in known:
                filled = self._fill(proposals, len(proposals) + 1)
                if len(filled) == len(proposals):
                    return proposals
                proposals, child = filled, filled[-1].genome
            else:
                proposals.append(Proposal(child, origin))
            known[child] = None
        return proposals

    def _fill(self, proposals: list[Proposal], size: int) -> list[Proposal]:
        """Random genomes up to `size`; fewer when the space seems used up."""
        proposals = list(proposals)
        known = {**self.seen, **dict.fromkeys(p.genome for p in proposals)}
        misses = 0
        while len(proposals) < size and misses < RETRIES * 10:
            genome = self.space.random(random)
            if genome in known:
                misses += 1
                continue
            known[genome] = None
            proposals.append(Proposal(genome, "random"))
        return proposals

    @contextmanager
    def _borrowed_random(self, keep: bool):
        """Python's global generator in this run's state; `keep` whether this run's state moves on."""
        theirs = random.getstate()
        random.setstate(self._random_state)
        try:
            yield
        finally:
            if keep:
                self._random_state = random.getstate()
            random.setstate(theirs)

    def state(self) -> dict[str, Any]:
        """All that the rest of the run depends on, as plain JSON."""
        version, internal, gauss = self._random_state
        return {
            "generation": self.generation,
            "population": [[list(m), m.fitness.values[0]] for m in self.population],
            "hall_of_fame": [[list(m), m.fitness.values[0]] for m in reversed(self.hall_of_fame)],
            "logbook": list(self.logbook),
            "seen": [list(g) for g in self.seen],
            "exhausted": self.exhausted,
            "random": [version, list(internal), gauss],
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from `state()` of a run with the same space, settings and seed."""
        version, internal, gauss = state["random"]
        self._random_state = (version, tuple(internal), gauss)
        self.generation, self.exhausted = state["generation"], state["exhausted"]
        self.population = [Member(g, s) for g, s in state["population"]]
        self.hall_of_fame.clear()
        for genome, score in state["hall_of_fame"]:  # worst first, as `insert` keeps the order of ties
            self.hall_of_fame.insert(Member(genome, score))
        self.seen = {tuple(g): None for g in state["seen"]}
        self.logbook = tools.Logbook()
        self.logbook.extend(state["logbook"])


def _toolbox(space: CurveSpace, settings: GeneticSettings) -> base.Toolbox:
    low, high = space.bounds
    bounds = {"eta": ETA, "low": [low] * space.genes, "up": [high] * space.genes}  # sequences: scalars miscount
    toolbox = base.Toolbox()
    toolbox.register("select", tools.selTournament, tournsize=settings.tournament)
    toolbox.register("mate", tools.cxSimulatedBinaryBounded, **bounds)
    toolbox.register("mutate", tools.mutPolynomialBounded, indpb=settings.gene_mutation, **bounds)
    toolbox.decorate("mutate", _bounded_step(settings.max_step))
    return toolbox


def _bounded_step(most: float) -> Callable:
    """A decorator, as DEAP uses them, that keeps each gene within `most` of what it was."""

    def decorate(mutate: Callable) -> Callable:
        def bounded(member: Member, *args, **kwargs):
            before = list(member)
            (member,) = mutate(member, *args, **kwargs)
            member[:] = [min(max(g, b - most), b + most) for g, b in zip(member, before, strict=True)]
            return (member,)

        return bounded

    return decorate
