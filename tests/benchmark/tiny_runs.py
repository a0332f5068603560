"""An experiment that takes a second, and lines without what may differ between two runs."""

import json

from labelwise.benchmark.protocol import change_protocol
from labelwise.benchmark.protocols import get_experiment
from labelwise.benchmark.results import format_result_line

FAST = {"optimizer": "adam", "lr": 0.01, "weight_decay": 0.0, "batch_size": 32, "epochs": 8}


def tiny(name="sparse-table2-mnist", **changes):
    """An experiment on digits that takes a second."""
    start = get_experiment(name).at("small").on("digits")
    small = {"pool": 400, "test": 200, "start": 30, "batch": 10, "rounds": 2, "networks": ("mlp",)}
    small["validation"] = min(start.validation, 60)
    learner = {**start.learner, **FAST, **changes.pop("learner", {})}
    return change_protocol(start, **{**small, "learner": learner, **changes})


def without_time(line):
    """What a line says, but for what may differ between two runs: times, memory and threads."""
    content = json.loads(format_result_line(line))
    for name in ("seconds", "peak_megabytes", "started", "device"):
        del content[name]
    return content


def plain(lines):
    """Lines without times, sorted."""
    return sorted(
        map(without_time, lines),
        key=lambda fact: json.dumps(
            [fact["strategy"], fact["options"], fact["seed"], fact["round"]]
        ),
    )
