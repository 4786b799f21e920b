"""The error of bad input to a campaign; the command line turns it into one line and exit code 2."""

from ropewalk.errors import FieldError


class CampaignError(FieldError):
    """A campaign, or what was asked of one, cannot be carried out; nothing was started."""
