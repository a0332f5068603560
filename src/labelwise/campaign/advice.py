"""What a stopping rule says, and the names of the rules."""

from dataclasses import dataclass

BUDGET, STABLE, FLAT, SPECTRUM = "budget", "stable", "flat", "spectrum"


@dataclass(frozen=True)
class Advice:
    """What one rule says.

    Attributes:
        rule: ``budget``, ``stable``, ``flat`` or ``spectrum``.
        stop: whether it would stop; False also where it cannot judge.
        says: what was seen and what it means.
        judged: whether there was enough to judge by.
    """

    rule: str
    stop: bool
    says: str
    judged: bool = True
