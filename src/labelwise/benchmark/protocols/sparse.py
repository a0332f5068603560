"""Batch active learning as sparse approximation: Tables 1, 2 and 3, and the ablation of Figure 4.

M. Shen, B. Jiang, J. Zhang, O. Koyejo, "Batch Active Learning from the Perspective of Sparse
Approximation", 2022. Networks start anew in every round. The paper does not say whether training
uses the weights; its Algorithm 3 suggests not, and that is the default here.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from labelwise.benchmark.protocol import Entrant, Protocol, Scale

PAPER = "Shen et al. 2022, Batch Active Learning from the Perspective of Sparse Approximation"

SGD: Mapping[str, Any] = {"optimizer": "sgd", "weight_decay": 5e-4}
"""Momentum is 0.9."""

OTHERS = tuple(map(Entrant, ("random", "margin", "confidence", "entropy", "k_center", "badge")))


def sparse(greedy: tuple[float, float], iht: tuple[float, float]) -> tuple[Entrant, ...]:
    """Both solvers with the paper's ``(alpha, beta)``."""
    return (
        Entrant("sparse_greedy", {"alpha": greedy[0], "beta": greedy[1]}),
        Entrant("sparse_iht", {"alpha": iht[0], "beta": iht[1]}),
    )


def as_printed(greedy: tuple[float, float], iht: tuple[float, float]) -> tuple[Entrant, ...]:
    """Both with the paper's ``(alpha, beta)`` and its deviations over n, which all but vanish."""
    return tuple(
        Entrant(entrant.strategy, {**entrant.options, "sigma_scale": "paper"})
        for entrant in sparse(greedy, iht)
    )


def balanced(greedy: float, iht: float) -> tuple[Entrant, ...]:
    """Both with an alpha free of units under which the two terms weigh about alike.

    An uncertain item is rewarded by 0.003 of the objective without picks; batches have some
    hundreds of items. ``greedy`` and ``iht`` are the betas.
    """
    return (
        Entrant("sparse_greedy", {"relative_alpha": 0.003, "beta": greedy}),
        Entrant("sparse_iht", {"relative_alpha": 0.003, "beta": iht}),
    )


TABLE2_MNIST = Protocol(
    name="sparse-table2-mnist",
    paper=f"{PAPER}, Table 2 and Figure 3",
    about="LeNet-5 on MNIST, 40 labels at a time",
    dataset="mnist",
    networks=("lenet5",),
    learner={**SGD, "lr": 0.01, "batch_size": 32, "epochs": 150},
    start=40,
    batch=40,
    rounds=15,
    validation=1000,
    entrants=(*OTHERS, *sparse((1e-8, 0.1), (1e-8, 1e-4))),
    scales={
        "small": Scale(
            "a pool of 4,000, 2,000 test images, 4 rounds, 40 epochs, 200 images for validation",
            {
                "pool": 4000,
                "test": 2000,
                "rounds": 4,
                "validation": 200,
                "learner": {"epochs": 40},
            },
        ),
        "medium": Scale("a pool of 20,000 and 10 rounds", {"pool": 20_000, "rounds": 10}),
    },
)

TABLE2_CIFAR10 = Protocol(
    name="sparse-table2-cifar10",
    paper=f"{PAPER}, Table 2 and Figure 3",
    about="VGG-16 on CIFAR-10, 3,000 labels at a time",
    dataset="cifar10",
    networks=("vgg16",),
    learner={**SGD, "lr": 1e-3, "batch_size": 128, "epochs": 100},
    start=3000,
    batch=3000,
    rounds=5,
    validation=1000,
    entrants=(*OTHERS, *sparse((1e-2, 0.1), (1e-8, 1e-6))),
    scales={
        "small": Scale(
            "the CNN of PyTorch's tutorial in place of VGG-16, a pool of 5,000, 2,000 test images, "
            "300 labels at a time, 3 rounds, 30 epochs at a learning rate of 0.01, 200 images for "
            "validation",
            {
                "networks": ("cnn",),
                "pool": 5000,
                "test": 2000,
                "start": 300,
                "batch": 300,
                "rounds": 3,
                "validation": 200,
                "learner": {"epochs": 30, "batch_size": 32, "lr": 0.01},
            },
        ),
        "medium": Scale(
            "a pool of 20,000, 1,000 labels at a time and 50 epochs",
            {"pool": 20_000, "start": 1000, "batch": 1000, "learner": {"epochs": 50}},
        ),
    },
)

TABLE2_SVHN = Protocol(
    name="sparse-table2-svhn",
    paper=f"{PAPER}, Table 2 and Figure 3",
    about="VGG-16 on SVHN, 1,000 labels at a time",
    dataset="svhn",
    networks=("vgg16",),
    learner={**SGD, "lr": 0.01, "batch_size": 128, "epochs": 150},
    start=1000,
    batch=1000,
    rounds=5,
    validation=1000,
    entrants=(*OTHERS, *sparse((0.1, 0.1), (1e-8, 1e-4))),
    scales={
        "small": Scale(
            "LeNet-5 in place of VGG-16, a pool of 5,000, 2,000 test images, 200 labels at a time, "
            "3 rounds, 60 epochs, 200 images for validation",
            {
                "networks": ("lenet5",),
                "pool": 5000,
                "test": 2000,
                "start": 200,
                "batch": 200,
                "rounds": 3,
                "validation": 200,
                "learner": {"epochs": 60, "batch_size": 32},
            },
        ),
        "medium": Scale(
            "a pool of 20,000 and 50 epochs", {"pool": 20_000, "learner": {"epochs": 50}}
        ),
    },
)

BAYESIAN: Mapping[str, Any] = {
    "members": "variational",
    "optimizer": "adam",
    "lr": 1e-3,
    "weight_decay": 5e-4,
    "batch_size": 256,
    "epochs": 200,
    "schedule": "cosine",
    "augment": "crop_and_flip",
}

BAYESIAN_OTHERS = tuple(map(Entrant, ("random", "bald", "batchbald", "bayesian_coreset")))

SMALL_BAYESIAN: Mapping[str, Any] = {
    "networks": ("lenet5",),
    "pool": 5000,
    "test": 2000,
    "start": 100,
    "batch": 100,
    "rounds": 4,
    "learner": {"epochs": 60, "batch_size": 64},
}

TABLE1_FASHION = Protocol(
    name="sparse-table1-fashion",
    paper=f"{PAPER}, Table 1 and Figure 2",
    about="a Bayesian ResNet-18 on Fashion-MNIST, 1,000 labels at a time",
    dataset="fashion_mnist",
    networks=("bayesian_resnet18_32",),
    learner=BAYESIAN,
    start=1000,
    batch=1000,
    rounds=9,
    entrants=(*BAYESIAN_OTHERS, *sparse((2.0, 0.5), (1.0, 1e-3))),
    scales={
        "small": Scale(
            "LeNet-5 with a variational last layer in place of ResNet-18, a pool of 5,000, 2,000 "
            "test images, 100 labels at a time, 4 rounds, 60 epochs",
            SMALL_BAYESIAN,
        ),
        "medium": Scale(
            "a ResNet-18 of a quarter of the width, a pool of 20,000, 500 labels at a time, 5 "
            "rounds, 60 epochs",
            {
                "networks": ("bayesian_resnet18_narrow",),
                "pool": 20_000,
                "start": 500,
                "batch": 500,
                "rounds": 5,
                "learner": {"epochs": 60},
            },
        ),
    },
)

TABLE1_CIFAR10 = Protocol(
    name="sparse-table1-cifar10",
    paper=f"{PAPER}, Table 1 and Figure 2",
    about="a Bayesian ResNet-18 on CIFAR-10, 5,000 labels at a time",
    dataset="cifar10",
    networks=("bayesian_resnet18_32",),
    learner=BAYESIAN,
    start=3000,
    batch=5000,
    rounds=4,
    entrants=(*BAYESIAN_OTHERS, *sparse((2.0, 1.0), (1.0, 1e-6))),
    scales={
        "small": Scale(
            "the CNN of PyTorch's tutorial with a variational last layer in place of ResNet-18, a "
            "pool of 5,000, 2,000 test images, 300 labels at a time, 3 rounds, 40 epochs",
            {
                **SMALL_BAYESIAN,
                "networks": ("cnn",),
                "start": 300,
                "batch": 300,
                "rounds": 3,
                "learner": {"epochs": 40, "batch_size": 64},
            },
        ),
        "medium": Scale(
            "a ResNet-18 of a quarter of the width, a pool of 20,000, 1,000 labels at a time, 60 "
            "epochs",
            {
                "networks": ("bayesian_resnet18_narrow",),
                "pool": 20_000,
                "start": 1000,
                "batch": 1000,
                "learner": {"epochs": 60},
            },
        ),
    },
)

TABLE3_TIME = Protocol(
    name="sparse-table3-time",
    paper=f"{PAPER}, Table 3",
    about="seconds of the first query on CIFAR-10 with VGG-16, 3,000 picks of 47,000",
    dataset="cifar10",
    networks=("vgg16",),
    learner={**SGD, "lr": 0.01, "batch_size": 128, "epochs": 10},
    start=3000,
    batch=3000,
    rounds=1,
    validation=1000,
    test=500,
    metric="seconds",
    study="first_query",
    entrants=(
        *(Entrant(name) for name in ("random", "entropy", "k_center", "badge")),
        *sparse((1e-2, 0.1), (1e-8, 1e-6)),
    ),
    reduced="10 epochs of training before the query, which are not timed",
    scales={
        "small": Scale(
            "the CNN of PyTorch's tutorial in place of VGG-16, a pool of 10,000, 500 picks",
            {"networks": ("cnn",), "pool": 10_000, "start": 500, "batch": 500},
        ),
        "medium": Scale("a pool of 20,000, 1,000 picks", {"pool": 20_000, "batch": 1000}),
    },
)

TABLE3_TIME_CPU = replace(
    TABLE3_TIME,
    name="sparse-table3-time-cpu",
    about="seconds of the first query on CIFAR-10, for a CPU: the same picks of as many features",
    networks=("cnn_512",),
    learner={**TABLE3_TIME.learner, "epochs": 1},
    reduced="a CNN of two convolutions with the 512 features of VGG-16, which would take longer to "
    "represent the pool on a CPU than most queries; one epoch of training before the query, which "
    "is not timed",
)

ABLATION = Protocol(
    name="sparse-fig4-ablation",
    paper=f"{PAPER}, Figure 4",
    about="the two terms of the objective apart: uncertainty alone, and approximation alone",
    dataset="fashion_mnist",
    networks=("bayesian_resnet18_32",),
    learner=BAYESIAN,
    start=1000,
    batch=1000,
    rounds=9,
    entrants=(
        Entrant("random"),
        *sparse((2.0, 0.5), (1.0, 1e-3)),
        Entrant("sparse_greedy", {"alpha": 0.0, "beta": 0.5}),
        Entrant("sparse_iht", {"alpha": 0.0, "beta": 1e-3}),
        Entrant("sparse_greedy", {"alpha": 1e8, "beta": 0.5}),
        *balanced(0.5, 1e-3),
        *as_printed((2.0, 0.5), (1.0, 1e-3)),
    ),
    reduced="uncertainty alone is an alpha of 1e8",
    scales=TABLE1_FASHION.scales,
)

WEIGHTED = replace(
    TABLE2_MNIST,
    name="sparse-weights-mnist",
    paper=f"{PAPER}, Algorithm 3",
    about="LeNet-5 on MNIST as in Table 2, trained with and without the weights of the picks",
    entrants=(
        Entrant("random"),
        *sparse((1e-8, 0.1), (1e-8, 1e-4)),
        Entrant("sparse_greedy", {"alpha": 1e-8, "beta": 0.1}, weights="mean"),
        Entrant("sparse_iht", {"alpha": 1e-8, "beta": 1e-4}, weights="mean"),
    ),
)

IHT_BETA = replace(
    TABLE2_MNIST,
    name="sparse-iht-beta-mnist",
    paper=f"{PAPER}, Table 2 with other penalties",
    about="LeNet-5 on MNIST as in Table 2, hard thresholding under a weaker and weaker penalty",
    entrants=(
        Entrant("random"),
        *(
            Entrant("sparse_iht", {"alpha": 1e-8, "beta": beta})
            for beta in (1e-4, 1e-5, 1e-6, 1e-7, 0.0)
        ),
    ),
)

EXPERIMENTS = {
    protocol.name: protocol
    for protocol in (
        TABLE1_FASHION,
        TABLE1_CIFAR10,
        TABLE2_MNIST,
        TABLE2_CIFAR10,
        TABLE2_SVHN,
        TABLE3_TIME,
        TABLE3_TIME_CPU,
        ABLATION,
        WEIGHTED,
        IHT_BETA,
    )
}
