"""Every error that labelwise raises on purpose.

A message says what was wrong, the value, and what to do: one line, lower case.
"""


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
