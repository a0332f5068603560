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
    """An optional package is needed for what was asked."""


class Conflict(LabelwiseError):
    """Someone else wrote to the record in the meantime; read it again and retry."""


class StorageFailed(LabelwiseError, OSError):
    """The record could not be read or written; what it held before is intact."""


class LabelwiseWarning(UserWarning):
    """Something was done in another way than asked; the selection's info says so too."""
