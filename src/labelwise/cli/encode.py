"""``labelwise encode`` and ``labelwise encoders``: features of images and texts."""

import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from labelwise.cli.app import (
    DeviceOption,
    EncoderOption,
    IdColumnOption,
    SkipBrokenOption,
    TextOption,
    app,
)
from labelwise.cli.console import print_limited_lines, print_table, show_progress, split_names
from labelwise.cli.files import check_output_file
from labelwise.display import escape_text, format_count
from labelwise.errors import BadInput, LabelwiseError

if TYPE_CHECKING:
    from labelwise.encoders.encoder import Kind
    from labelwise.encoders.registry import BuiltInEncoder

encoders_group = typer.Typer(invoke_without_command=True)
app.add_typer(encoders_group, name="encoders")

_TIMED_SECONDS = 0.5

_OTHER = (
    ("onnx:FILE", "both", "onnxruntime", "your ONNX model"),
    ("hf:NAME", "both", "transformers", "transformers"),
    ("st:NAME", "texts", "sentence_transformers", "sentence-transformers"),
    ("timm:NAME", "images", "timm", "timm"),
    ("module:function", "both", "labelwise", "your function"),
)
"""Other specifications of encoders: kind of the items, library, and description."""


@app.command("encode")
def encode_items(
    source: Annotated[
        Path, Argument(help="Folder of images, or table of texts.", metavar="DIR|FILE")
    ],
    out: Annotated[Path, Option("--out", "-o", help="File to write: .npy or .parquet.")],
    encoder: EncoderOption = "auto",
    text: TextOption = None,
    id_column: IdColumnOption = None,
    batch_size: Annotated[
        int | None, Option(help="Items per call of the model (default: the encoder's own).")
    ] = None,
    device: DeviceOption = "auto",
    skip_broken: SkipBrokenOption = False,
) -> None:
    """Encode images or texts by a frozen pretrained encoder, offline and without torch.

    Examples:
        labelwise encode photos --out features.npy
        labelwise encode photos --out features.parquet --encoder onnx:mine.onnx
        labelwise encode reviews.csv --text review --out features.npy --encoder minilm

    Images may be in subfolders; rows are in the alphabetical order of their paths, which a .parquet
    file holds in the column id. After an interruption the same command continues. [bold]labelwise
    select[/bold] takes the file.
    """
    from labelwise.encoders import PartialFeatures, open_encoder
    from labelwise.encoders.feature_files import FORMATS, write_feature_file
    from labelwise.encoders.registry import AUTO, TEXT_HINT

    check_output_file(out, FORMATS)
    if id_column is not None and out.suffix != ".parquet":
        raise BadInput(f"a {out.suffix} file holds no ids; give --out a .parquet file")
    kind, items, ids = _read_items_to_encode(source, split_names(text), id_column)
    corpus = items if kind == "texts" else None
    model = open_encoder(encoder, kind, device=device, corpus=corpus, places=[Path.cwd()])
    if encoder == AUTO and model.name == "tfidf":
        print(f"note: {TEXT_HINT}", file=sys.stderr)
    store = PartialFeatures(out.absolute().parent / f".{out.name}.encoding", model)
    started = time.monotonic()
    try:
        with store, show_progress(lines_after=10) as progress:
            broken = store.encode(items, batch_size=batch_size, progress=progress)
            _report_broken_images(broken, ids, skip_broken)
            good = [place for place in range(len(items)) if place not in broken]
            if not good:
                raise BadInput(f"nothing in {source} can be encoded")
            write_feature_file(
                out,
                [ids[place] for place in good],
                model.dimension,
                lambda part: store.read([items[place] for place in good[part]]),
            )
    except KeyboardInterrupt:
        print("encoded items are kept: the same command continues with them", file=sys.stderr)
        raise
    store.remove()
    seconds = time.monotonic() - started
    print(
        f"{format_count(len(good), 'item')} of {escape_text(source.name)} encoded by {model.name}: "
        f"{model.dimension:,} features each, in {out} ({seconds:.0f} s)"
    )


def _read_items_to_encode(
    source: Path, text: list[str], id_column: str | None
) -> tuple["Kind", list[Any], list[Any]]:
    """The kind of a source, its items, and their ids: paths, or row numbers."""
    from labelwise.media.folders import find_images
    from labelwise.media.tables import choose_columns, join_texts, read_keys, read_table

    if source.is_dir():
        if text or id_column:
            raise BadInput(f"--text and --id name columns of a table, and {source} is a folder")
        paths = list(find_images(source).paths)
        if not paths:
            raise BadInput(f"{source} has no images")
        return "images", [source / path for path in paths], paths
    table = read_table(source)
    names = text or list(choose_columns(source, table).text)
    if not names:
        raise BadInput(f"name the texts of {source} with --text, of {', '.join(table)}")
    missing = [name for name in names if name not in table]
    if missing:
        raise BadInput(f"{source} has no column {missing[0]!r}; it has {', '.join(table)}")
    texts = join_texts(table, names)
    ids = list(range(len(texts))) if id_column is None else read_keys(source, table, id_column)
    return "texts", texts, ids


def _report_broken_images(broken: dict[int, str], ids: list[Any], skip: bool) -> None:
    """List images that cannot be read; they are an error unless they are to be left out."""
    print_limited_lines([f"{ids[place]}: {reason}" for place, reason in sorted(broken.items())])
    if not broken:
        return
    count = f"{len(broken):,} of {len(ids):,} images cannot be read"
    if not skip:
        raise BadInput(f"{count}; repair or remove them, or leave them out with --skip-broken")
    print(f"note: {count} and are left out", file=sys.stderr)


@encoders_group.callback()
def list_encoders(context: typer.Context) -> None:
    """List the encoders, with their speed on this machine.

    Examples:
        labelwise encoders
        labelwise encoders fetch minilm
    """
    from labelwise.encoders import BUILT_IN

    if context.invoked_subcommand is not None:
        return
    rows: list[tuple[str, ...]] = []
    notes = []
    for entry in BUILT_IN.values():
        size = f"{entry.megabytes:g} MB" if entry.megabytes else "-"
        dimension = f"{entry.dimension:,}" if entry.dimension else "up to 100"
        state, speed = "to download", "-"
        try:
            if entry.is_ready:
                state, speed = "ready", _measure_encoder_speed(entry)
        except LabelwiseError as error:
            state = "unusable"
            notes.append(str(error))
        rows.append((entry.name, entry.kind, dimension, size, speed, state, entry.about))
    for spec, kind, library, about in _OTHER:
        state = "ready" if find_spec(library) else "to install"
        rows.append((spec, kind, "-", "-", "-", state, about))
    print_table(("encoder", "kind", "features", "size", "items/s", "state", "about"), rows)
    missing = [entry.name for entry in BUILT_IN.values() if not entry.is_ready]
    if missing:
        notes.append(f"to download: labelwise encoders fetch {' '.join(missing)}")
    for note in notes:
        print(note)


def _measure_encoder_speed(entry: "BuiltInEncoder") -> str:
    """How many items a second an encoder encodes."""
    import numpy as np

    from labelwise.encoders import open_encoder
    from labelwise.encoders.encoding import encode_batches

    texts = [f"item {number} of a list of short texts to encode" for number in range(64)]
    encoder = open_encoder(entry.name, entry.kind, corpus=texts)
    blank = np.zeros((96, 128, 3), np.uint8)
    items: list[Any] = [blank] * 64 if encoder.kind == "images" else texts
    done, started = 0, time.perf_counter()
    while time.perf_counter() - started < _TIMED_SECONDS:
        done += sum(len(batch.places) for batch in encode_batches(encoder, items))
    return f"{done / (time.perf_counter() - started):,.0f}"


@encoders_group.command("fetch")
def fetch_encoder_files(
    names: Annotated[list[str], Argument(help="Names of encoders.", metavar="NAME...")],
) -> None:
    """Download encoders that are not in the package; files are verified by their checksums."""
    from labelwise.encoders import fetch_encoder

    for name in names:
        path = fetch_encoder(name)
        print(f"{name} needs no file" if path is None else f"{name} is in {path}")
