"""Studies of frozen encoders: growth, and rounds of buying labels for linear layers.

==============  =======================  ===========  ============================================
study           ``labels`` of a line is  ``metric``   what
==============  =======================  ===========  ============================================
encoder_growth  the number of encoders   lewis_total  T, or the sum of the ranks
encoder_heads   labels                   accuracy     rounds of buying labels for linear layers
==============  =======================  ===========  ============================================
"""

from collections.abc import Iterator
from functools import lru_cache

import numpy as np

from labelwise.arrays import Floats
from labelwise.benchmark.devices import Clock, Device
from labelwise.benchmark.encoders.heads import SUFFIX, HeadRun, HeadStage, of_protocol, together
from labelwise.benchmark.protocol import Entrant, Protocol
from labelwise.benchmark.results import RoundResult
from labelwise.benchmark.rounds import play
from labelwise.benchmark.studies.growth import model_weights, power, totals
from labelwise.benchmark.studies.lines import line

ORDER = 19
"""The stream of randomness that decides which encoder comes when."""


def encoder_growth(
    protocol: Protocol, entrant: Entrant, seed: int, device: Device
) -> Iterator[RoundResult]:
    """How the sum of the largest weights grows with the encoders that a batch must serve.

    The encoders come in an order that the seed draws, so that the mean over seeds does not depend
    on which is good or wide. The option ``p`` is that of the Lewis weights; with
    ``curve="ranks"`` it is the sum of the ranks instead, which bounds it.
    """
    clock = Clock(device)
    order = np.random.default_rng([seed, ORDER]).permutation(len(of_protocol(protocol).ends))
    weights = (_weights(*_made_for(protocol), int(place), power(entrant)) for place in order)
    for number, value in enumerate(totals(weights, entrant)):
        yield line(protocol, entrant, seed, device, number, number + 1, value, clock.lap())


def _made_for(protocol: Protocol) -> tuple[str, tuple[str, ...], int | None]:
    """Data set, encoders and components, as `_weights` takes them."""
    settings = protocol.settings
    dataset = protocol.dataset.removesuffix(SUFFIX)
    return dataset, tuple(settings["encoders"]), settings.get("components")


@lru_cache(maxsize=64)
def _weights(
    dataset: str, encoders: tuple[str, ...], components: int | None, number: int, p: float
) -> Floats:
    """The weights of all items by one encoder; seeds differ only in the order of the encoders."""
    data = together(dataset, encoders, components)
    features = data.inputs[:, data.columns(number)].astype(np.float64)
    return model_weights(features, p)


def encoder_heads(
    protocol: Protocol, entrant: Entrant, seed: int, device: Device
) -> Iterator[RoundResult]:
    """Rounds of buying labels for linear layers on the encoders."""
    yield from play([HeadRun(HeadStage(protocol, device), entrant, seed)])
