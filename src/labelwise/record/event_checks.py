"""What the fields of events must be, so that whatever is written can be read again unchanged."""

import math
from collections.abc import Callable


def is_label(value: object) -> bool:
    """Whether a value can be a label: a whole number, a finite number or a text.

    Example:
        >>> is_label("cat"), is_label(3), is_label(float("nan")), is_label(True)
        (True, True, False, False)
    """
    return type(value) in (int, str) or (type(value) is float and math.isfinite(value))


def _is_number(value: object) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    return type(value) is int


def _is_count(value: object) -> bool:
    return type(value) is int and value >= 0


def _is_id(value: object) -> bool:
    return type(value) is int and -(2**63) <= value < 2**63


def _is_seconds(value: object) -> bool:
    return value is None or (_is_number(value) and value >= 0)  # type: ignore[operator]


def _is_text(value: object) -> bool:
    return type(value) is str


def _is_plain(value: object) -> bool:
    """Whether JSON gives the value back unchanged."""
    if type(value) is dict:
        return all(type(key) is str and _is_plain(entry) for key, entry in value.items())
    if type(value) is list:
        return all(_is_plain(entry) for entry in value)
    return value is None or type(value) in (bool, str) or _is_number(value)


def _is_settings(value: object) -> bool:
    return type(value) is dict and _is_plain(value)


def _is_ids(value: object) -> bool:
    return type(value) is tuple and all(map(_is_id, value))


def _is_numbers(value: object) -> bool:
    return value is None or (type(value) is tuple and all(map(_is_number, value)))


def _is_guess(value: object) -> bool:
    return type(value) is tuple and len(value) == 2 and is_label(value[0]) and _is_number(value[1])


def _is_guesses(value: object) -> bool:
    return value is None or (type(value) is tuple and all(map(_is_guess, value)))


_PLAIN = "a dict of what JSON can hold (text keys, lists, texts, finite numbers, true, false, null)"
_WHOLE = (_is_count, "a whole number, 0 or more")
_TEXT = (_is_text, "a text")
CHECKS: dict[str, tuple[Callable[[object], bool], str]] = {
    "at": (_is_number, "a finite number of seconds"),
    "until": (_is_number, "a finite number of seconds"),
    "id": (_is_id, "a whole number of 64 bits"),
    "ids": (_is_ids, "a tuple of whole numbers of 64 bits"),
    "validation": (_is_ids, "a tuple of whole numbers of 64 bits"),
    "label": (is_label, "a whole number, a finite number or a text"),
    "by": _TEXT,
    "reason": _TEXT,
    "error": _TEXT,
    "strategy": _TEXT,
    "checkpoint": (lambda value: value is None or _is_text(value), "a text or None"),
    "items": _WHOLE,
    "batch": _WHOLE,
    "number": _WHOLE,
    "labels": _WHOLE,
    "seed": (lambda value: type(value) is int, "a whole number"),
    "model": (lambda value: value is None or _is_count(value), "a whole number or None"),
    "seconds": (_is_seconds, "a finite number of seconds, 0 or more, or None"),
    "weights": (_is_numbers, "a tuple of finite numbers or None"),
    "scores": (_is_numbers, "a tuple of finite numbers or None"),
    "guesses": (_is_guesses, "a tuple of (label, confidence) tuples or None"),
    "settings": (_is_settings, _PLAIN),
    "options": (_is_settings, _PLAIN),
    "metrics": (_is_settings, _PLAIN),
    "info": (_is_settings, _PLAIN),
}
"""What each field must be; a field means the same in every event that has it."""
