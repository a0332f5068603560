"""Texts that a spreadsheet program would take for formulas.

A .csv file says nothing about types, so Excel, LibreOffice and Google Sheets compute a cell that
begins with ``=``, ``+``, ``-`` or ``@``, and a formula may send the rest of the table elsewhere. In
a table for programs the text has to stay as it is; in one that people open by a double click, an
apostrophe before it makes it a text (OWASP, "CSV Injection").
"""

import re
from typing import Any

BEGINNINGS = tuple("=+-@\t\r\n＝＋－＠")
"""How a formula may begin; some programs take the wide forms and skip leading white space."""

_NUMBER = re.compile(r"[+-](\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


def is_formula(value: Any) -> bool:
    """Whether a spreadsheet program would compute a cell: a text, and no number.

    Example:
        >>> [is_formula(value) for value in ("=1+1", "-2.5", -2.5, "- no", "a=b", "@ann")]
        [True, False, False, True, False, True]
    """
    begins = isinstance(value, str) and value.startswith(BEGINNINGS)
    return begins and not _NUMBER.fullmatch(value)


def as_text(value: Any) -> Any:
    """A value that no spreadsheet program takes for a formula.

    Example:
        >>> as_text("=1+1"), as_text("owl"), as_text(-3)
        ("'=1+1", 'owl', -3)
    """
    return f"'{value}" if is_formula(value) else value
