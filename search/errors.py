"""What ends a campaign with one line: bad input, exit code 2, or a search that cannot go on, exit code 1."""

from ropewalk.errors import FieldError


class CampaignError(FieldError):
    """A campaign, or what was asked of one, cannot be carried out; nothing was started."""


class SearchError(RuntimeError):
    """A campaign that has started cannot go on; the message says why."""
