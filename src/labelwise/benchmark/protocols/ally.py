"""Active learning by Lagrangian duality: Figures 2 to 6.

J. Elenter, N. NaderiAlizadeh, A. Ribeiro, "A Lagrangian Duality Approach to Active Learning",
NeurIPS 2022. Networks start anew, training stops early on validation items, and those are counted
(the authors' code does not). All strategies are measured on networks that are trained without
constraints; the constrained one is only asked where to look.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from labelwise.benchmark.protocol import Entrant, Protocol, Scale

PAPER = "Elenter et al. 2022, A Lagrangian Duality Approach to Active Learning"

STOPPED: Mapping[str, Any] = {"optimizer": "adam", "batch_size": 64, "epochs": 100, "patience": 2}

OTHERS = tuple(map(Entrant, ("random", "margin", "entropy", "k_center", "badge", "bait")))
ALLY = Entrant("ally", learner={"epsilon": 0.2})

SMALL: Mapping[str, Any] = {
    "pool": 5000,
    "test": 2000,
    "start": 100,
    "batch": 100,
    "rounds": 5,
    "validation": 200,
    "learner": {"epochs": 60},
}
SMALL_WORDS = (
    "a pool of 5,000, 2,000 test images, 100 labels at a time, 5 rounds, 60 epochs at most, 200 "
    "images for validation"
)

FIG2_MNIST = Protocol(
    name="ally-fig2-mnist",
    paper=f"{PAPER}, Figure 2",
    about="a perceptron on MNIST, 200 labels at a time",
    dataset="mnist",
    networks=("mlp",),
    learner={**STOPPED, "lr": 5e-3},
    start=200,
    batch=200,
    rounds=14,
    validation=500,
    entrants=(*OTHERS, ALLY),
    scales={
        "small": Scale(SMALL_WORDS, SMALL),
        "medium": Scale("a pool of 15,000 and 9 rounds", {"pool": 15_000, "rounds": 9}),
    },
)

FIG2_CIFAR10 = Protocol(
    name="ally-fig2-cifar10",
    paper=f"{PAPER}, Figure 2",
    about="a narrow ResNet-18 on CIFAR-10, 200 labels at a time",
    dataset="cifar10",
    networks=("resnet18_narrow",),
    learner={**STOPPED, "lr": 1e-3},
    start=200,
    batch=200,
    rounds=14,
    validation=500,
    entrants=(*OTHERS, ALLY),
    scales={
        "small": Scale(
            f"the small CNN in place of ResNet-18, {SMALL_WORDS}", {**SMALL, "networks": ("cnn",)}
        ),
        "medium": Scale("a pool of 15,000 and 6 rounds", {"pool": 15_000, "rounds": 6}),
    },
)

FIG2_STL10 = Protocol(
    name="ally-fig2-stl10",
    paper=f"{PAPER}, Figure 2",
    about="a narrow ResNet-18 on STL-10, 200 labels at a time",
    dataset="stl10",
    networks=("resnet18_narrow",),
    learner={**STOPPED, "lr": 1e-3},
    start=200,
    batch=200,
    rounds=14,
    validation=500,
    entrants=(*OTHERS, ALLY),
    reduced="the 5,000 training images that STL-10 comes with",
    scales={
        "small": Scale(
            f"the small CNN in place of ResNet-18, {SMALL_WORDS}",
            {**SMALL, "pool": None, "networks": ("cnn",)},
        ),
        "medium": Scale("6 rounds", {"rounds": 6}),
    },
)

FIG3_REGRESSION = Protocol(
    name="ally-fig3-regression",
    paper=f"{PAPER}, Figure 3",
    about="a perceptron for a regression, 200 labels at a time",
    dataset="casp",
    networks=("mlp",),
    learner={**STOPPED, "lr": 1e-3, "loss": "mse", "patience": 5},
    start=200,
    batch=200,
    rounds=10,
    validation=500,
    metric="mse",
    entrants=(
        *map(Entrant, ("random", "k_center", "bait")),
        Entrant("ally", learner={"epsilon": 0.1}),
    ),
    reduced="protein structures (CASP) in place of Parkinson's telemonitoring, patience of 5",
    scales={"small": Scale(SMALL_WORDS, SMALL)},
)

FIG4_EPSILON = replace(
    FIG2_MNIST,
    name="ally-fig4-epsilon",
    paper=f"{PAPER}, Figure 4",
    about="the bound of the losses: from almost none to one that nothing exceeds",
    entrants=(
        Entrant("random"),
        *(Entrant("ally", learner={"epsilon": bound}) for bound in (0.02, 0.2, 2.0, 20.0)),
    ),
)


def redundancy(copies: int) -> Protocol:
    """Figure 5 with every image so often in the pool."""
    name = "ally-fig5-redundancy" if copies == 5 else f"ally-fig5-redundancy-{copies}"
    return replace(
        FIG2_MNIST,
        name=name,
        paper=f"{PAPER}, Figure 5",
        about=f"every image {copies} times in the pool",
        rounds=10,
        copies=copies,
        pool=10_000,
        entrants=(
            *map(Entrant, ("random", "entropy", "badge")),
            ALLY,
            Entrant("ally", {"diversity": "none"}, {"epsilon": 0.2}),
        ),
        reduced="MNIST and a perceptron in place of STL-10 and ResNet-18, 10,000 different images",
        scales={"small": Scale(SMALL_WORDS, {**SMALL, "pool": 3000})},
    )


FIG6_CLUSTERS = replace(
    FIG2_MNIST,
    name="ally-fig6-clusters",
    paper=f"{PAPER}, Figure 6",
    about="how many clusters the picks are spread over",
    entrants=(
        Entrant("random"),
        Entrant("ally", {"diversity": "none"}, {"epsilon": 0.2}),
        *(Entrant("ally", {"clusters": count}, {"epsilon": 0.2}) for count in (10, 50, 100)),
        ALLY,
    ),
)

EXPERIMENTS = {
    protocol.name: protocol
    for protocol in (
        FIG2_MNIST,
        FIG2_CIFAR10,
        FIG2_STL10,
        FIG3_REGRESSION,
        FIG4_EPSILON,
        redundancy(1),
        redundancy(5),
        redundancy(10),
        FIG6_CLUSTERS,
    )
}
