"""The demo: runs on handwritten digits, what they show, and the page that shows it."""

from labelwise.demo.runs import (
    BASELINE,
    Plan,
    Run,
    accuracies_by_strategy,
    run_all,
    run_one,
)

__all__ = ["BASELINE", "Plan", "Run", "accuracies_by_strategy", "run_all", "run_one"]
