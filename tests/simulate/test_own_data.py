"""A user's own data: every form of it, and what is refused."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from labelwise.errors import BadInput
from labelwise.simulate import encode_own_data
from labelwise.simulate.own_data import check_own_data, read_own_data

ROWS = [
    {
        "id": n,
        "height": n / 4,
        "age": n % 5,
        "note": f"words {n}",
        "plant": "oak rose fern".split()[n % 3],
    }
    for n in range(36)
]
HEIGHTS = np.array([row["height"] for row in ROWS], dtype=np.float32)
CLASSES = [{"fern": 0, "oak": 1, "rose": 2}[row["plant"]] for row in ROWS]


def write_csv(path, rows, delimiter=","):
    lines = [delimiter.join(rows[0])]
    lines += [delimiter.join("" if v is None else str(v) for v in row.values()) for row in rows]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def write(path, rows):
    """The rows in the form that the name asks for."""
    if path.suffix in (".csv", ".tsv"):
        return write_csv(path, rows, "\t" if path.suffix == ".tsv" else ",")
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        pq.write_table(pa.Table.from_pylist(rows), path)
    return path


FORMS = ("t.csv", "t.tsv", "t.jsonl", "t.parquet")


@pytest.mark.parametrize("form", FORMS)
def test_every_table_gives_the_same_numbers_and_classes(form, tmp_path):
    data = read_own_data(write(tmp_path / form, ROWS), labels="plant", without=["id"])
    assert (data.name, data.kind, data.classes) == (form, "numbers", ("fern", "oak", "rose"))
    assert data.targets.tolist() == CLASSES
    np.testing.assert_array_equal(data.inputs[:, 0], HEIGHTS)
    assert data.inputs.shape == (36, 2) and data.inputs.dtype == np.float64
    assert data.notes == ("numbers: height, age", "left out, not numeric: note")


@pytest.mark.parametrize("form", FORMS)
def test_text_columns_are_put_together(form, tmp_path):
    rows = [{**row, "title": None if n == 1 else "a title"} for n, row in enumerate(ROWS)]
    data = read_own_data(write(tmp_path / form, rows), labels="plant", text=["title", "note"])
    assert data.kind == "texts"
    assert data.inputs[:2].tolist() == ["a title words 0", "words 1"]


def test_a_table_with_one_text_column_and_no_numbers_is_texts(tmp_path):
    rows = [{"note": row["note"], "plant": row["plant"]} for row in ROWS]
    data = read_own_data(write(tmp_path / "t.csv", rows), labels="plant")
    assert data.kind == "texts" and data.notes == ("texts: note",)


def test_semicolons_and_a_byte_order_mark_are_understood(tmp_path):
    path = write_csv(tmp_path / "t.csv", ROWS, ";")
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    data = read_own_data(path, labels="plant", columns=["height"])
    np.testing.assert_array_equal(data.inputs, HEIGHTS[:, None])


@pytest.mark.parametrize("form", FORMS[2:])
def test_a_column_of_lists_is_an_embedding(form, tmp_path):
    rows = [{"embedding": [row["height"], 1.0], "plant": row["plant"]} for row in ROWS]
    data = read_own_data(write(tmp_path / form, rows), labels="plant")
    np.testing.assert_array_equal(data.inputs, np.stack([HEIGHTS, np.ones(36)], axis=1))


def test_folders_of_pictures_are_classes(tmp_path):
    for name, shade in (("dark", 10), ("light", 200)):
        (tmp_path / name).mkdir()
        for number in range(20):
            picture = np.full((6, 8), shade + number, dtype=np.uint8)
            Image.fromarray(picture).save(tmp_path / name / f"{number:02d}.png")
    data = read_own_data(tmp_path)
    assert data.classes == ("dark", "light") and data.kind == "images"
    assert data.targets.tolist() == [0] * 20 + [1] * 20
    assert data.inputs[3] == str(tmp_path / "dark" / "03.png") and len(data.inputs) == 40


def test_images_in_one_folder_take_their_labels_from_a_table(tmp_path):
    folder, file = tmp_path / "photos", tmp_path / "labels.csv"
    (folder / "a").mkdir(parents=True)
    names = [f"a/{n:02d}.png" if n % 2 else f"{n:02d}.png" for n in range(40)]
    for name in names:
        (folder / name).write_bytes(b"")
    lines = [f"{name},{'dark' if n < 20 else 'light'}" for n, name in enumerate(names)]
    file.write_text("\n".join(["id,label", *lines, "00.png,"]))
    data = read_own_data(folder, labels=str(file))
    found = {
        Path(p).relative_to(folder).as_posix(): k
        for p, k in zip(data.inputs, data.targets, strict=True)
    }
    assert data.classes == ("dark", "light")
    assert found == {name: int(n >= 20) for n, name in enumerate(names)}
    file.write_text("\n".join(["file,label", *lines[:-1]]))
    with pytest.raises(BadInput, match="1 of 40 rows of photos have no label"):
        read_own_data(folder, labels=str(file))
    assert len(read_own_data(folder, labels=str(file), drop_unlabelled=True)) == 39
    for line, message in (("x.png,dark", "no image of that name"), ("00.png,light", "two labels")):
        file.write_text("\n".join(["id,label", *lines, line]))
        with pytest.raises(BadInput, match=message):
            read_own_data(folder, labels=str(file))


def test_arrays_in_npz_and_npy_files(tmp_path):
    features, labels = np.arange(80.0).reshape(40, 2), np.array(["x", "y"] * 20)
    np.savez(tmp_path / "a.npz", features=features, labels=labels, other=np.zeros(3))
    np.savez(tmp_path / "b.npz", rows=features, kind=labels)
    np.save(tmp_path / "f.npy", features)
    np.save(tmp_path / "y.npy", labels)
    asked = [("a.npz", None), ("b.npz", "kind"), ("f.npy", str(tmp_path / "y.npy"))]
    for name, column in asked:
        data = read_own_data(tmp_path / name, labels=column)
        np.testing.assert_array_equal(data.inputs, features)
        assert data.classes == ("x", "y") and data.targets.tolist() == [0, 1] * 20


@pytest.mark.parametrize(
    ("shape", "wanted"),
    [((40, 6, 7), (40, 1, 6, 7)), ((40, 6, 7, 3), (40, 3, 6, 7)), ((40, 3, 6, 7), (40, 3, 6, 7))],
)
def test_pictures_in_arrays_get_their_channels_first(shape, wanted):
    images = np.random.default_rng(0).integers(0, 255, shape).astype(np.uint8)
    data = check_own_data(images, [0, 1] * 20)
    assert data.kind == "images" and data.inputs.shape == wanted
    first = images[..., None] if images.ndim == 3 else images
    moved = first if shape == wanted else np.moveaxis(first, 3, 1)
    np.testing.assert_array_equal(data.inputs, moved)


def test_amounts_are_told_from_classes():
    inputs = np.zeros((60, 2))
    fractions = np.arange(60) / 7
    assert check_own_data(inputs, fractions).classes is None
    np.testing.assert_allclose(
        check_own_data(inputs, fractions).targets[:, 0], fractions, rtol=1e-6
    )
    assert check_own_data(inputs, [str(value) for value in fractions]).classes is None
    assert check_own_data(inputs, np.arange(60) % 3 + 0.5).classes == ("0.5", "1.5", "2.5")
    assert check_own_data(inputs, np.arange(60) % 12).classes[:3] == ("0", "1", "2")  # 10 after 9
    assert check_own_data(inputs, np.arange(60) % 12, regression=True).classes is None
    assert len(check_own_data(inputs, np.arange(60) % 25 / 4, regression=False).classes) == 25


def test_rows_without_a_label_are_counted_or_dropped(tmp_path):
    rows = [{**row, "plant": None if row["id"] in (3, 5) else row["plant"]} for row in ROWS]
    for form in FORMS:
        path = write(tmp_path / form, rows)
        with pytest.raises(BadInput, match=r"2 of 36 rows of .* have no label"):
            read_own_data(path, labels="plant")
        data = read_own_data(path, labels="plant", columns=["id"], drop_unlabelled=True)
        assert data.inputs[:, 0].tolist() == [n for n in range(36) if n not in (3, 5)]
        assert "left out 2 rows without a label" in data.notes


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"labels": "palnt"}, "no column 'palnt'; it has id, height, age, note, plant"),
        ({}, "name the column of the labels with --labels; .* has id, height"),
        ({"labels": "plant", "text": ["height"], "columns": ["age"]}, "not both"),
        ({"labels": "plant", "text": ["plant"]}, "cannot be an input too"),
        ({"labels": "plant", "columns": ["note"]}, "'note' .* values that are not numbers"),
        ({"labels": "plant", "regression": True}, "label 'oak'; a regression needs finite"),
        ({"labels": "id"}, r"36 labels for 36 items; if they are amounts, say so"),
        ({"labels": "note"}, "36 labels for 36 items; are they classes"),
    ],
)
def test_wrong_columns_are_refused(asked, message, tmp_path):
    with pytest.raises(BadInput, match=message):
        read_own_data(write(tmp_path / "t.csv", ROWS), **asked)


@pytest.mark.parametrize("blank", ["", "NA", "nan"])
def test_missing_numbers_are_filled_and_marked(blank, tmp_path):
    rows = [{**row, "age": blank if row["id"] < 4 else row["age"]} for row in ROWS]
    whole = read_own_data(write(tmp_path / "w.csv", ROWS), labels="plant", without=["id"])
    data = read_own_data(write(tmp_path / "t.csv", rows), labels="plant", without=["id"])
    assert data.inputs.shape[1] == whole.inputs.shape[1] + 1
    assert "missing numbers filled with the median: age" in data.notes


def test_wrong_arrays_are_refused():
    inputs = np.zeros((40, 2))
    inputs[7, 1] = np.nan
    with pytest.raises(BadInput, match=r"1 of 40 rows of data hold NaN .* row 7"):
        check_own_data(inputs, [0, 1] * 20)
    clean = np.zeros((40, 2))
    for labels, message in [
        ([1] * 40, "all 40 items of data have the label '1'"),
        ([0, 1] * 19, "40 items but 38 labels"),
        (np.zeros((40, 2)), "labels of shape"),
        (["a", ""] * 20, "20 of 40 rows of data have no label"),
    ]:
        with pytest.raises(BadInput, match=message):
            check_own_data(clean, labels)
    with pytest.raises(BadInput, match="the label inf; a regression needs finite numbers"):
        check_own_data(clean, [*np.arange(39) / 7, np.inf], regression=True)
    with pytest.raises(BadInput, match="10 items; a simulation needs 30 or more"):
        check_own_data(clean[:10], [0, 1] * 5)
    with pytest.raises(BadInput, match="inputs of shape"):
        check_own_data(np.zeros(40), [0, 1] * 20)


def test_wrong_files_are_refused(tmp_path):
    (tmp_path / "train").mkdir()
    Image.new("L", (4, 4)).save(tmp_path / "train" / "a.png")
    (tmp_path / "broken.csv").write_text("a,b\n1,2\n1\n")
    (tmp_path / "x.pdf").write_text("")
    (tmp_path / "l.jsonl").write_text('{"a": 1}\n[1]\n')
    np.savez(tmp_path / "a.npz", inputs=np.zeros((3, 2)))
    for name, message in [
        ("", "folders of .* are train, not classes"),
        ("train", "no images in folders"),
        ("nowhere", "no file or folder"),
        ("broken.csv", "row 3 of .* has 1 fields but there are 2 columns"),
        ("x.pdf", "known file type"),
        ("l.jsonl", "line 2 of .* is not a JSON object"),
        ("a.npz", "none of the arrays labels, .* it has inputs"),
    ]:
        with pytest.raises(BadInput, match=message):
            read_own_data(tmp_path / name)


def test_a_file_that_is_no_picture_is_named(tmp_path):
    (tmp_path / "cat").mkdir()
    (tmp_path / "dog").mkdir()
    for number in range(15):
        Image.new("L", (5, 5), number).save(tmp_path / "cat" / f"{number}.png")
        Image.new("L", (5, 5), number).save(tmp_path / "dog" / f"{number}.png")
    (tmp_path / "cat" / "bad.png").write_text("no picture")
    with pytest.raises(BadInput, match=r"1 of 31 images cannot be read .*bad\.png"):
        encode_own_data(read_own_data(tmp_path), "auto")
