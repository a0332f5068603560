"""Files that change, or are not the same on two machines, are told."""

import numpy as np
import pytest

from labelwise.running.parts import MappedFile
from labelwise.running.seen_files import Machine, Seen, see

HERE, THERE = Machine("a", "1"), Machine("b", "2")


@pytest.mark.parametrize(
    ("other", "told"),
    [
        (Seen(HERE, {"f": (10, 5)}), ""),
        (Seen(HERE, {"f": (10, 6)}), "f has changed while items were picked"),
        (Seen(HERE, {"f": (11, 5)}), "f has changed while items were picked"),
        (Seen(HERE, {}), "f has changed while items were picked"),
        (Seen(HERE, {"f": (10, 5), "g": (1, 1)}), "g has changed while items were picked"),
        (Seen(THERE, {"f": (10, 6)}), ""),  # a copy
        (Seen(Machine("a", "2"), {"f": (10, 6)}), ""),  # another machine of the same name
        (Seen(THERE, {"f": (11, 5)}), "f has 10 bytes on a but 11 on b; give every machine the"),
    ],
)
def test_files_that_are_not_the_same_are_told(other, told):
    found = Seen(HERE, {"f": (10, 5)}).unlike(other)
    assert found.startswith(told) and bool(found) == bool(told)


def test_all_files_are_seen_but_for_remote_ones(tmp_path):
    for name in ("a.npy", "b.npy"):
        np.save(tmp_path / name, np.ones(3))
    mapped = MappedFile(str(tmp_path / "raw.bin"), np.dtype("f8"), 0, (3,))
    (tmp_path / "raw.bin").write_bytes(bytes(24))
    values = {"features": [str(tmp_path / "?.npy"), np.ones(3)], "outputs": mapped}
    values["logits"] = "s3://bucket/rows.npy"
    found = see(values)
    assert found.files.keys() == {str(tmp_path / name) for name in ("a.npy", "b.npy", "raw.bin")}
    assert found.files[str(tmp_path / "raw.bin")][0] == 24
    (tmp_path / "raw.bin").unlink()
    assert found.now().files[str(tmp_path / "raw.bin")] == (0, 0)
    assert found.now().by == found.by
