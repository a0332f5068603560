"""The line that a study writes, in the form of any round."""

import datetime

from labelwise.benchmark import devices
from labelwise.benchmark.devices import Device
from labelwise.benchmark.protocol import Entrant, Protocol
from labelwise.benchmark.results import RoundResult
from labelwise.benchmark.rounds import key_fields


def line(
    protocol: Protocol,
    entrant: Entrant,
    seed: int,
    device: Device,
    number: int,
    labels: int,
    value: float,
    seconds: float,
) -> RoundResult:
    """A line with one measurement, whose ``seconds`` count as those of selecting."""
    return RoundResult(
        **key_fields(protocol, entrant, seed),
        round=number,
        labels=labels,
        metric=protocol.metric,
        value=value,
        values=(value,),
        higher_is_better=protocol.higher_is_better,
        reduced=protocol.reduced,
        seconds={"train": 0.0, "represent": 0.0, "select": round(seconds, 6)},
        peak_megabytes=devices.peak_megabytes(device),
        device=devices.described(device),
        versions=devices.versions(),
        started=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        code=devices.code(),
    )
