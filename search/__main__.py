"""`python -m search`: the same as the console script `ropewalk`, and what a Ray job's entrypoint runs."""

import sys

from search.cli import main

sys.exit(main())
