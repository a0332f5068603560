"""Tables of numbers, drawings as lines, and dSprites."""

import json

import numpy as np
import pytest

from labelwise.benchmark.datasets import readers
from labelwise.errors import BadInput
from tests.benchmark.datasets.files import matched, npz

TABLE = np.arange(60.0).reshape(20, 3)


def written(table, delimiter=",", head=""):
    lines = [delimiter.join(str(value) for value in row) for row in table]
    return head + "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    ("text", "delimiter", "names"),
    [
        (written(TABLE, ",", '"a","b","target"\n'), ",", ["a", "b", "target"]),
        (written(TABLE, ";", "a;b;target\r\n"), ";", ["a", "b", "target"]),
        (written(TABLE, "\t"), "", ["0", "1", "2"]),
        (written(TABLE, "  ") + "\n\n", "", ["0", "1", "2"]),
        ("\ufeff" + written(TABLE, ",", "a,b,target\n"), ",", ["a", "b", "target"]),
        (
            "@relation x\n@attribute a real [0, 1]\n@ATTRIBUTE b integer[0,9]\n"
            "@attribute target real\n@inputs a, b\n@outputs target\n@data\n" + written(TABLE, ", "),
            ",",
            ["a", "b", "target"],
        ),
    ],
)
def test_a_table_is_read_by_its_columns(text, delimiter, names):
    found = readers.read_number_columns("x", text, delimiter)
    assert list(found) == names
    np.testing.assert_array_equal(np.stack(list(found.values()), axis=1), TABLE)


@pytest.mark.parametrize("text", ["a,b\n1,2\n3\n", "a,b\n1,x\n", "a,b,c\n1,2\n", ""])
def test_what_is_no_table_is_refused(text):
    with pytest.raises(BadInput, match=r"bad.csv"):
        readers.read_number_columns("bad.csv", text)


def test_targets_and_other_columns_are_taken_out_of_the_features():
    files = {"sub/x.csv": written(TABLE, ",", "subject,target,f\n").encode()}
    found = readers.read_regression_table(
        matched(files, "*x.csv"), targets=("target",), without=("subject",)
    )
    features = np.concatenate([found.inputs, found.test_inputs])
    values = np.concatenate([found.targets, found.test_targets])
    assert (found.inputs.shape, found.test_inputs.shape) == ((16, 1), (4, 1))
    np.testing.assert_array_equal(features, values + 1)
    np.testing.assert_array_equal(np.sort(values[:, 0]), TABLE[:, 1])
    assert (features.dtype, values.dtype) == (np.float32, np.float32)


def test_a_missing_column_is_named():
    files = {"x.csv": b"a,b\n1,2\n"}
    with pytest.raises(BadInput, match=r"x.csv has no column 'RMSD'; it has a, b"):
        readers.read_regression_table(matched(files, "*x.csv"), targets=("RMSD",))


def test_satimage_has_no_class_6():
    rows = np.random.default_rng(0).integers(30, 150, (6, 36))
    table = np.concatenate([rows, np.array([[1, 2, 3, 4, 5, 7]]).T], axis=1)
    data = written(table, " ").encode()
    files = {"sat.trn.txt": data, "sat.tst.txt": data[: data.index(b"\n") + 1]}
    found = readers.read_satimage(matched(files, "*sat.trn*", "*sat.tst*"))
    np.testing.assert_array_equal(found.inputs, rows)
    assert found.targets.tolist() == [0, 1, 2, 3, 4, 5]
    assert found.test_targets.tolist() == [0]


def test_the_last_drawings_of_every_class_are_held_out():
    drawings = np.random.default_rng(0).random((2, 5, 784)).round(3)
    files = {
        f"package/src/drawings/{name}.ndjson": "\n".join(
            json.dumps(row.tolist()) for row in rows
        ).encode()
        for name, rows in zip(["ant", "The Eiffel Tower"], drawings, strict=True)
    }
    found = readers.read_quick_draw(matched(files, "*.ndjson"), test=2)
    tower, ant = drawings[1], drawings[0]
    wanted = np.concatenate([tower[:3], ant[:3]]).reshape(6, 1, 28, 28)
    np.testing.assert_allclose(found.inputs, wanted, atol=1e-7)
    assert found.targets.tolist() == [0, 0, 0, 1, 1, 1]
    np.testing.assert_allclose(found.test_inputs[2:].reshape(2, 784), ant[3:], atol=1e-7)
    assert found.test_targets.tolist() == [0, 0, 1, 1]


def test_drawings_of_another_size_are_refused():
    with pytest.raises(BadInput, match=r"ant.ndjson has shape"):
        readers.read_quick_draw([[("drawings/ant.ndjson", b"[1, 2]\n" * 30)]])


def sprites(n=9000):
    """More pictures than one block; the latents say which is which."""
    pictures = np.random.default_rng(0).integers(0, 2, (n, 4, 4)).astype(np.uint8)
    latents = np.arange(n)[:, None] + np.array([0, 0.1, 0.2, 0.3, 0.4, 0.5])
    return pictures, latents


def test_some_sprites_keep_their_scale_and_place():
    pictures, latents = sprites()
    meta = np.array({"title": "x"}, dtype=object)  # as in the original, which is never unpickled
    data = npz(metadata=meta, imgs=pictures, latents_values=latents)
    found = readers.read_dsprites([[("d/dsprites_x.npz", data)]], train=300, test=100, total=9000)
    numbers = found.targets[:, 0].round().astype(int)
    assert len(np.unique(numbers)) == 300
    assert numbers.max() > 8192
    np.testing.assert_array_equal(found.inputs[:, 0], 255 * pictures[numbers])
    np.testing.assert_allclose(found.targets, latents[numbers][:, [2, 4, 5]], rtol=1e-6)
    held = found.test_targets[:, 0].round().astype(int)
    assert len(np.unique(held)) == 100
    assert not np.intersect1d(held, numbers).size


def test_another_number_of_sprites_is_refused():
    pictures, latents = sprites(50)
    data = npz(imgs=pictures, latents_values=latents)
    with pytest.raises(BadInput, match="it has 50 images instead of 737280"):
        readers.read_dsprites([[("dsprites_x.npz", data)]], train=30, test=10)
