"""The guard at work: which candidates harm short contexts too much to be worth a score at length.

It is asked before a candidate is scored, on short examples that only the search sees, so an infeasible one costs a few
short contexts. The report measures harm again on examples of its own.
"""

from collections.abc import Sequence

from ropewalk import Profile
from search.errors import SearchError
from search.scoreboard import Scoreboard


class Guard:
    """Refuses candidates that lose more than `tolerance` of the metric against the unchanged model.

    Args:
        board: of the short examples.
        identity: the unchanged model's profile.
        tolerance: in units of the metric.
        called: the metric, for the reason.
    """

    def __init__(self, board: Scoreboard, identity: Profile, tolerance: float, called: str):
        self.board, self.identity, self.tolerance, self.called = board, identity, tolerance, called

    def refused(self, profiles: Sequence[Profile]) -> dict[str, str]:
        """Why each infeasible profile is so, by its hash.

        A candidate that fails on the short examples is not refused here: it will be found to have failed at length.

        Raises:
            SearchError: the unchanged model fails.
            Interrupted: the campaign was asked to stop.
        """
        plain, *found = self.board.score([self.identity, *profiles], "guard")
        if plain.score is None:
            raise SearchError(f"the guard cannot be measured: the unchanged model fails there: {plain.reason}")
        return {
            profile.hash: self._reason(plain.score, outcome.score)
            for profile, outcome in zip(profiles, found, strict=True)
            if outcome.score is not None and plain.score - outcome.score > self.tolerance
        }

    def _reason(self, plain: float, score: float) -> str:
        return (
            f"infeasible: loses {plain - score:.3f} of {self.called} at {self.board.examples.length} tokens against "
            f"the unchanged model, tolerance {self.tolerance:g}"
        )
