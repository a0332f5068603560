"""The report on results files: one HTML page, and on request a CSV file and pictures.

=============  =================================================================================
writing        the files: page, CSV and pictures
experiment     rounds as arrays, and what is missing
findings       what an experiment shows, with `labels_needed`, beside the `papers`' own numbers
words, tables  findings as sentences and as rows of text
figures        findings as pictures
page, style    all of it as one page
=============  =================================================================================

What writes is imported when it is asked for: those who only want findings need no Matplotlib.
"""

import importlib
from typing import Any

__all__ = ["BASELINES", "repeat_commands", "write_figures", "write_report"]


def __getattr__(name: str) -> Any:
    """Import what is asked for, when it is asked for."""
    if name not in __all__:
        raise AttributeError(f"labelwise.benchmark.report has no {name!r}")
    return getattr(importlib.import_module(f"{__name__}.writing"), name)
