"""The genetic algorithm as a promise list: feasible, new, elitist, reproducible, resumable, undisturbed."""

import json
import random

import pytest
from pydantic import ValidationError

from search.genetic import Genetic, GeneticSettings
from search.spaces import CurveSpace

SPACE = CurveSpace(minimum=1, maximum=8, step=0.25)
SETTINGS = GeneticSettings(population=12, generations=6, elite=3)
TARGET = (1.0, 2.0, 5.0, 7.0)


def score(genome):
    return -sum((g - t) ** 2 for g, t in zip(genome, TARGET, strict=True))


def finish(genetic, score=score):
    while not genetic.done:
        proposals = genetic.ask()
        genetic.tell(proposals, [score(p.genome) for p in proposals])
    return genetic


@pytest.mark.parametrize("seed", range(5))
def test_it_finds_a_better_curve_than_any_it_started_from(seed):
    genetic = Genetic(SPACE, SETTINGS, seed, 4.0)
    first = max(score(p.genome) for p in genetic.ask())
    assert finish(genetic).best[1] > first


@pytest.mark.parametrize("seed", range(5))
def test_no_genome_is_evaluated_twice_and_all_are_feasible(seed):
    asked = []
    genetic = Genetic(SPACE, SETTINGS, seed, 4.0)
    finish(genetic, lambda g: asked.append(g) or score(g))
    assert len(asked) == len(set(asked)) == SETTINGS.evaluations
    assert all(SPACE.repair(g) == g for g in asked)


@pytest.mark.parametrize("seed", range(3))
def test_the_best_never_gets_lost(seed):
    genetic = finish(Genetic(SPACE, SETTINGS, seed, 4.0))
    best = [record["best"] for record in genetic.logbook]
    assert best == sorted(best)
    assert genetic.best[1] == best[-1]


@pytest.mark.parametrize("seed", range(3))
def test_a_run_stopped_after_any_generation_and_restored_ends_the_same(seed):
    whole = finish(Genetic(SPACE, SETTINGS, seed, 4.0))
    part = Genetic(SPACE, SETTINGS, seed, 4.0)
    while not part.done:
        proposals = part.ask()
        part.tell(proposals, [score(p.genome) for p in proposals])
        state = json.loads(json.dumps(part.state()))
        part = Genetic(SPACE, SETTINGS, seed, 4.0)
        part.restore(state)
    assert part.state() == whole.state()


def test_others_who_use_the_global_generator_change_nothing_and_are_not_changed():
    quiet = finish(Genetic(SPACE, SETTINGS, 0, 4.0))
    random.seed(5)
    noisy = Genetic(SPACE, SETTINGS, 0, 4.0)
    drawn = []

    def disturbing(genome):
        drawn.append(random.random())
        return score(genome)

    finish(noisy, disturbing)
    assert noisy.state() == quiet.state()
    random.seed(5)
    assert drawn == [random.random() for _ in drawn]


def test_asking_twice_gives_the_same_genomes():
    genetic = Genetic(SPACE, SETTINGS, 0, 4.0)
    assert genetic.ask() == genetic.ask()


def test_a_failed_candidate_never_becomes_a_parent_or_the_best():
    genetic = Genetic(SPACE, SETTINGS, 0, 4.0)
    failed = set()

    def sometimes(genome):
        if genome[0] > 4:
            failed.add(genome)
            return None
        return score(genome)

    finish(genetic, sometimes)
    assert failed
    assert failed.isdisjoint({tuple(m) for m in genetic.population} | {genetic.best[0]})
    assert sum(record["failed"] for record in genetic.logbook) == len(failed)


def test_when_everything_fails_it_says_so():
    genetic = Genetic(SPACE, SETTINGS, 0, 4.0)
    proposals = genetic.ask()
    with pytest.raises(ValueError, match="every candidate of the first generation failed"):
        genetic.tell(proposals, [None] * len(proposals))


def test_scores_for_other_genomes_are_refused():
    genetic = Genetic(SPACE, SETTINGS, 0, 4.0)
    proposals = genetic.ask()[::-1]
    with pytest.raises(ValueError, match="other genomes"):
        genetic.tell(proposals, [score(p.genome) for p in proposals])


def test_a_space_that_is_used_up_ends_the_run_early():
    small = CurveSpace(control_points=2, minimum=1, maximum=2, step=0.5)
    genetic = Genetic(small, GeneticSettings(population=4, generations=50, elite=1, tournament=2), 0, 2.0)
    while not genetic.done:
        proposals = genetic.ask()
        genetic.tell(proposals, [-abs(p.genome[0] - 1.5) for p in proposals])
    assert len(genetic.seen) == 9
    assert genetic.generation < 50


def test_one_mutation_moves_a_gene_by_at_most_max_step():
    settings = GeneticSettings(population=12, generations=4, crossover=0, mutation=1, max_step=0.5)
    genetic = Genetic(SPACE, settings, 0, 4.0)
    random.seed(0)
    for _ in range(200):
        before = [4.0, 1.0, 8.0, 3.0]
        from search.genetic import Member

        (after,) = genetic._toolbox.mutate(Member(before))
        assert all(abs(a - b) <= 0.5 + 1e-12 for a, b in zip(after, before, strict=True))


def test_the_first_generation_holds_the_seeds_then_random_genomes():
    origins = [p.origin for p in Genetic(SPACE, SETTINGS, 0, 4.0).ask()]
    assert len(origins) == 12
    assert set(origins) == {"seed", "random"} or set(origins) == {"seed"}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"population": 6, "elite": 6}, "elite 6 must be below population 6"),
        ({"population": 4, "tournament": 4}, "tournament 4 must be below population 4"),
        ({"mutation": 1.5}, "less than or equal to 1"),
        ({"generations": 0}, "greater than or equal to 1"),
    ],
)
def test_settings_that_cannot_work_are_refused(fields, message):
    with pytest.raises(ValidationError, match=message):
        GeneticSettings(**fields)
