"""The forms in which the files of several data sets come."""

from functools import partial

from labelwise.benchmark.datasets import images, tables, texts
from labelwise.benchmark.datasets.entries import Layout
from labelwise.benchmark.datasets.parquet import parquet


def in_parquet(side: int | None, mode: str = "RGB") -> Layout:
    """Parquet files, as hubs for data keep them."""
    read = partial(parquet, side=side, mode=mode)
    return Layout("Parquet files", ("train*.parquet", "test*.parquet"), read)


def idx() -> Layout:
    """MNIST's four IDX files, compressed or not."""
    parts = ("train-images", "train-labels", "t10k-images", "t10k-labels")
    return Layout("IDX files", tuple(f"*{part}*ubyte" for part in parts), images.idx_images)


def emnist(split: str, *, first: int = 0) -> Layout:
    """The four IDX files of one split of EMNIST."""
    prefix = f"emnist-{split}-"
    parts = ("train-images", "train-labels", "test-images", "test-labels")
    wanted = tuple(f"*{prefix}{part}*ubyte" for part in parts)
    read = partial(images.idx_images, prefix=prefix, test="test", transposed=True, first=first)
    return Layout("IDX files", wanted, read)


def table(
    file: str, targets: tuple[str, ...], without: tuple[str, ...] = (), by: str | None = ","
) -> Layout:
    """One table of numbers, a fifth of whose rows are held out."""
    read = partial(tables.regression, file=file, targets=targets, without=without, delimiter=by)
    return Layout(f"the table {file.strip('*')}", (file,), read)


def tab_separated(stem: str) -> tuple[Layout, ...]:
    """Texts with their classes, from Orange or as A. Cardoso-Cachopo published them."""
    parts = (f"*{stem}train", f"*{stem}test")
    orange = partial(texts.tab_separated, stem=stem, head=3)
    plain = partial(texts.tab_separated, stem=stem)
    return (
        Layout("Orange's .tab files", tuple(f"{part}.tab" for part in parts), orange),
        Layout("lines of class and text", tuple(f"{part}-all-terms.txt" for part in parts), plain),
    )


CIFAR_10 = (
    Layout(
        "rows in PNG files",
        ("*data_batch_[1-5].png", "*test_batch.png", "*_lables.json"),
        images.png_rows,
    ),
    Layout(
        "binary files",
        ("*data_batch_[1-5].bin", "*test_batch.bin"),
        partial(images.cifar_binary, train="*data_batch_[1-5].bin", test="*test_batch.bin"),
    ),
    Layout(
        "Python's pickles",
        ("*data_batch_[1-5]", "*test_batch"),
        partial(images.cifar_pickles, train="*data_batch_[1-5]", test="*test_batch"),
    ),
)


def human(key: str) -> tuple[Layout, ...]:
    """CIFAR-10 in any of its forms, with the labels of CIFAR-10N beside it."""
    return tuple(
        Layout(
            f"{layout.form} and CIFAR-10_human.pt",
            (*layout.wanted, "*cifar-10_human.pt"),
            partial(images.human_labels, read=layout.read, key=key),
        )
        for layout in CIFAR_10
    )
