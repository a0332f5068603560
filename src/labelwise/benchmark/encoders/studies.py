"""Experiments on frozen encoders, as runners that `labelwise.benchmark.studies` lists.

==============  =======================  ===========  ============================================
study           ``labels`` of a line is  ``metric``   what
==============  =======================  ===========  ============================================
encoder_growth  the number of encoders   lewis_total  T, or the sum of the ranks
encoder_heads   labels                   accuracy     rounds of buying labels for linear layers
==============  =======================  ===========  ============================================
"""

import datetime
from collections.abc import Iterator
from functools import lru_cache

import numpy as np

from labelwise.arrays import Floats, to_numpy
from labelwise.benchmark import devices
from labelwise.benchmark.devices import Clock, Device
from labelwise.benchmark.encoders.heads import SUFFIX, HeadRun, HeadStage, of_protocol, together
from labelwise.benchmark.protocol import Entrant, Protocol
from labelwise.benchmark.results import Round
from labelwise.benchmark.rounds import key_fields, play
from labelwise.kernels import leverage_scores, lewis_weights

ORDER = 19
"""The stream of randomness that decides which encoder comes when."""


def encoder_growth(
    protocol: Protocol, entrant: Entrant, seed: int, device: Device
) -> Iterator[Round]:
    """How the sum of the largest weights grows with the encoders that a batch must serve.

    The encoders come in an order that the seed draws, so that the mean over seeds does not depend
    on which is good or wide. The option ``p`` is that of the Lewis weights; with
    ``curve="ranks"`` it is the sum of the ranks instead, which bounds it.
    """
    clock = Clock(device)
    p = float(entrant.options.get("p", 2.0))
    data = of_protocol(protocol)
    count = len(data.ends)
    largest: Floats = np.zeros(len(data.rows))
    ranks = 0.0
    for number, place in enumerate(np.random.default_rng([seed, ORDER]).permutation(count)):
        own = _weights(
            protocol.dataset.removesuffix(SUFFIX),
            tuple(protocol.settings["encoders"]),
            protocol.settings.get("components"),
            int(place),
            p,
        )
        largest = np.maximum(largest, own)
        ranks += float(own.sum())
        bounded = min(ranks, float(len(own)))
        value = bounded if entrant.options.get("curve") == "ranks" else float(largest.sum())
        yield Round(
            **key_fields(protocol, entrant, seed),
            round=number,
            labels=number + 1,
            metric=protocol.metric,
            value=value,
            values=(value,),
            higher_is_better=protocol.higher_is_better,
            reduced=protocol.reduced,
            seconds={"train": 0.0, "represent": 0.0, "select": round(clock.lap(), 6)},
            peak_megabytes=devices.peak_megabytes(device),
            device=devices.described(device),
            versions=devices.versions(),
            started=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        )


@lru_cache(maxsize=64)
def _weights(
    dataset: str, encoders: tuple[str, ...], components: int | None, number: int, p: float
) -> Floats:
    """The weights of all items by one encoder; seeds differ only in the order of the encoders."""
    data = together(dataset, encoders, components)
    features = data.inputs[:, data.columns(number)].astype(np.float64)
    found = leverage_scores(features) if p == 2 else lewis_weights(features, p)
    return np.asarray(to_numpy(found), dtype=np.float64)


def encoder_heads(
    protocol: Protocol, entrant: Entrant, seed: int, device: Device
) -> Iterator[Round]:
    """Rounds of buying labels for linear layers on the encoders."""
    yield from play([HeadRun(HeadStage(protocol, device), entrant, seed)])
