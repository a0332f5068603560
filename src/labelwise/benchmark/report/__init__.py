"""The report on results files.

==========  ======================================================================
page        the report: page, CSV file and figures
experiment  results as arrays, and missing results
findings    analysis of an experiment; `papers` holds the printed values
texts       formatted numbers and sentences
tables      rows of text, and the CSV file
figures     figures, with matplotlib
==========  ======================================================================

Writing is imported on demand, so that the analysis does not need matplotlib.
"""

import importlib
from typing import Any

__all__ = ["repeat_commands", "write_figures", "write_report"]


def __getattr__(name: str) -> Any:
    """Import the page module on demand."""
    if name not in __all__:
        raise AttributeError(f"labelwise.benchmark.report has no {name!r}")
    return getattr(importlib.import_module(f"{__name__}.page"), name)
