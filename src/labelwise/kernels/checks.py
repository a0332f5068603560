"""Checks of option values that several strategies and kernels share."""

import math
from collections.abc import Iterable
from numbers import Integral, Real
from typing import TypeGuard

from labelwise.errors import BadInput


def is_number(value: object) -> TypeGuard[float]:
    """Whether a value is a real number; booleans are not."""
    return isinstance(value, Real) and not isinstance(value, bool)


def check_integer(name: str, value: object, least: int) -> None:
    """Reject anything but an integer of at least ``least``; booleans are rejected too.

    >>> check_integer("rounds", 2.5, 0)
    Traceback (most recent call last):
    labelwise.errors.BadInput: rounds must be a whole number, 0 or more; got 2.5
    """
    if isinstance(value, bool) or not isinstance(value, Integral) or int(value) < least:
        raise BadInput(f"{name} must be a whole number, {least} or more; got {value!r}")


def check_boolean(name: str, value: object) -> None:
    """Reject anything but True and False."""
    if not isinstance(value, bool):
        raise BadInput(f"{name} must be True or False; got {value!r}")


def check_positive(name: str, value: object) -> None:
    """Reject anything but a finite number above 0.

    >>> check_positive("bandwidth", -1.0)
    Traceback (most recent call last):
    labelwise.errors.BadInput: bandwidth must be a number above 0; got -1.0
    """
    if not is_number(value) or not 0 < value < math.inf:
        raise BadInput(f"{name} must be a number above 0; got {value!r}")


def check_choice(name: str, value: object, choices: Iterable[str]) -> None:
    """Reject a value that is not one of the choices.

    >>> check_choice("mode", "fast", ("budget", "theory"))
    Traceback (most recent call last):
    labelwise.errors.BadInput: mode must be one of budget, theory; got 'fast'
    """
    known = tuple(choices)
    if value not in known:
        raise BadInput(f"{name} must be one of {', '.join(known)}; got {value!r}")
