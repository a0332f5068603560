"""Sets that no package holds, read from a folder with the original download."""

from functools import partial

from labelwise.benchmark.datasets import images, matlab
from labelwise.benchmark.datasets.entries import Entry, Layout
from labelwise.benchmark.datasets.layouts import emnist, idx, in_parquet, table

ENTRIES = (
    Entry(
        "kmnist",
        (1, 28, 28),
        train=60_000,
        test=10_000,
        classes=10,
        layouts=(
            Layout(
                ".npz files",
                ("*train-imgs.npz", "*train-labels.npz", "*test-imgs.npz", "*test-labels.npz"),
                images.npz_images,
            ),
            idx(),
        ),
        licence="CC BY-SA 4.0",
        home="https://github.com/rois-codh/kmnist",
        train_counts=(6000,) * 10,
        test_counts=(1000,) * 10,
    ),
    Entry(
        "emnist_digits",
        (1, 28, 28),
        train=240_000,
        test=40_000,
        classes=10,
        layouts=(emnist("digits"),),
        home="https://www.nist.gov/itl/products-and-services/emnist-dataset",
        train_counts=(24_000,) * 10,
        test_counts=(4000,) * 10,
    ),
    Entry(
        "emnist_letters",
        (1, 28, 28),
        train=124_800,
        test=20_800,
        classes=26,
        layouts=(emnist("letters", first=1),),
        home="https://www.nist.gov/itl/products-and-services/emnist-dataset",
        other_counts=((88_800, 14_800),),
    ),
    Entry(
        "svhn",
        (3, 32, 32),
        train=73_257,
        test=26_032,
        classes=10,
        layouts=(
            Layout("cropped digits as .mat", ("*train_32x32.mat", "*test_32x32.mat"), matlab.svhn),
            in_parquet(32),
        ),
        licence="non-commercial",
        home="http://ufldl.stanford.edu/housenumbers/",
        train_counts=(4948, 13861, 10585, 8497, 7458, 6882, 5727, 5595, 5045, 4659),
    ),
    Entry(
        "cifar100",
        (3, 32, 32),
        train=50_000,
        test=10_000,
        classes=100,
        layouts=(
            Layout(
                "binary files",
                ("*train.bin", "*test.bin"),
                partial(images.cifar_binary, train="*train.bin", test="*test.bin", label_bytes=2),
            ),
            Layout(
                "Python's pickles",
                ("*cifar-100-python/train", "*cifar-100-python/test"),
                partial(
                    images.cifar_pickles,
                    train="*cifar-100-python/train",
                    test="*cifar-100-python/test",
                    labels="fine_labels",
                ),
            ),
            in_parquet(32),
        ),
        home="https://www.cs.toronto.edu/~kriz/cifar.html",
        train_counts=(500,) * 100,
        test_counts=(100,) * 100,
    ),
    Entry(
        "stl10",
        (3, 96, 96),
        train=5000,
        test=8000,
        classes=10,
        layouts=(
            Layout(
                "binary files",
                ("*train_x.bin", "*train_y.bin", "*test_x.bin", "*test_y.bin"),
                images.stl10,
            ),
        ),
        home="https://cs.stanford.edu/~acoates/stl10/",
        train_counts=(500,) * 10,
        test_counts=(800,) * 10,
    ),
    Entry(
        "caltech101",
        (3, 64, 64),
        train=6942,
        test=1735,
        classes=101,
        layouts=(
            Layout(
                "a folder per class",
                ("*101_objectcategories/*/*.jpg",),
                partial(images.image_folders, side=64, share=0.2, without=("BACKGROUND_Google",)),
            ),
        ),
        licence="CC BY 4.0",
        home="https://data.caltech.edu/records/mzrjq-6wc02",
    ),
    Entry(
        "tiny_imagenet",
        (3, 64, 64),
        train=100_000,
        test=10_000,
        classes=200,
        layouts=(
            Layout(
                "its folders",
                (
                    "*wnids.txt",
                    "*train/*/images/*.jpeg",
                    "*val/images/*.jpeg",
                    "*val/val_annotations.txt",
                ),
                images.tiny_imagenet,
            ),
        ),
        licence="non-commercial (ImageNet)",
        home="http://cs231n.stanford.edu/tiny-imagenet-200.zip",
        train_counts=(500,) * 200,
        test_counts=(50,) * 200,
    ),
    Entry(
        "parkinsons",
        (19,),
        train=4700,
        test=1175,
        classes=None,
        layouts=(table("*parkinsons_updrs.data", ("total_UPDRS",), ("subject#", "motor_UPDRS")),),
        licence="CC BY 4.0 (UCI repository)",
        home="https://archive.ics.uci.edu/dataset/189",
    ),
)
