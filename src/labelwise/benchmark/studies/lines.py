"""The result line of a study."""

import datetime

from labelwise.benchmark.benchmark_run import make_result
from labelwise.benchmark.devices import Device
from labelwise.benchmark.protocol import Entrant, Protocol
from labelwise.benchmark.results import RoundResult


def make_line(
    protocol: Protocol,
    entrant: Entrant,
    seed: int,
    device: Device,
    number: int,
    labels: int,
    value: float,
    seconds: float,
) -> RoundResult:
    """A line with one measurement; ``seconds`` count as those of selecting."""
    return make_result(
        protocol,
        entrant,
        seed,
        device,
        round=number,
        labels=labels,
        values=(value,),
        seconds={"train": 0.0, "represent": 0.0, "select": round(seconds, 6)},
        started=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    )
