"""Checks of what users give that several strategies and kernels share."""

from numbers import Integral
from typing import Any

from labelwise.errors import BadInput


def check_whole(name: str, value: Any, least: int) -> None:
    """Refuse what is no whole number, or below ``least``; True and False are none either.

    Example:
        >>> check_whole("rounds", 2.5, 0)
        Traceback (most recent call last):
        labelwise.errors.BadInput: rounds must be a whole number, 0 or more; got 2.5
    """
    if isinstance(value, bool) or not isinstance(value, Integral) or int(value) < least:
        raise BadInput(f"{name} must be a whole number, {least} or more; got {value!r}")
