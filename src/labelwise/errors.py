"""Every error that labelwise raises on purpose.

A message says what was wrong, the value, and what to do: one line, lower case.
"""

from collections.abc import Iterator
from contextlib import contextmanager


class LabelwiseError(Exception):
    """The base of all errors raised on purpose."""


class BadInput(LabelwiseError, ValueError):
    """An argument or an array cannot be used as it is."""


class UnknownName(LabelwiseError, LookupError):
    """No strategy, option, representation or item has that name."""


class NotConverged(LabelwiseError, ArithmeticError):
    """An iteration did not reach its tolerance."""


class MissingDependency(LabelwiseError, ImportError):
    """An optional package is not installed."""


class Conflict(LabelwiseError):
    """Someone else wrote to the record in the meantime; read it again and retry."""


class StorageFailed(LabelwiseError, OSError):
    """The record or another file cannot be read or written; its content is unchanged."""


class LabelwiseWarning(UserWarning):
    """A result differs from the request; the selection's info says so too."""


@contextmanager
def require_extra(words: str, extra: str) -> Iterator[None]:
    """Turn a failed import in the block into the advice to install an extra.

    Example:
        >>> with require_extra("the page needs fastapi", "web"):
        ...     import no_such_package
        Traceback (most recent call last):
        labelwise.errors.MissingDependency: the page needs fastapi (No module named \
'no_such_package'); run pip install 'labelwise[web]'
    """
    try:
        yield
    except MissingDependency:
        raise
    except ImportError as error:
        advice = f"run pip install 'labelwise[{extra}]'"
        raise MissingDependency(f"{words} ({error}); {advice}") from error


def first_line(error: BaseException) -> str:
    """The message of an error, in one line and without its full stop.

    Example:
        >>> first_line(OSError("no route to the host.")), first_line(OSError())
        ('no route to the host', 'OSError')
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if len(lines) > 1 and lines[0].endswith(":"):  # what follows is the message, or has it last
        lines[0] += f" {lines[-1 if lines[1].startswith('Traceback') else 1]}"
    return lines[0].rstrip(".:") if lines else type(error).__name__
