"""The table of default strategies: what is used where nobody names a strategy.

Keys are whether labels are values (a regression). The reasons are in
``docs/decisions/defaults-from-results.md``.
"""

from collections.abc import Mapping

BASELINE = "random"
"""What every strategy is compared with, and the first batch of those that need a model."""

DEFAULT: Mapping[bool, str] = {False: "uherding", True: "mixed_lcmd"}  # Strategy of a new campaign
COMPARED: Mapping[bool, tuple[str, ...]] = {False: ("margin", "badge"), True: ("lcmd", "k_center")}
"""Strategies that ``labelwise simulate`` compares with the default and with `BASELINE`."""

REPORTED = (BASELINE, "badge")
"""Strategies that a report compares the others with, as far as they were run."""

FROZEN_BASELINES = (BASELINE, "margin", "badge")
"""Strategies that tables of frozen feature experiments compare the others with."""

COVERING = ("max_herding", "typiclust")
"""Strategies on features alone that the table of the oracle shows too."""

DEMONSTRATED = (
    DEFAULT[False],
    *("margin", "badge", "lewis", "sparse_greedy", "bss", "dynamics", "ally"),
)
"""Strategies of ``labelwise demo``: the default, well-known ones, one or more of each paper."""
