"""Blocks of files and host arrays as tensors on a device: the rows are those of the source."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import labelwise  # noqa: E402
from labelwise.errors import BadInput  # noqa: E402
from labelwise.pool.blocks import open_shards  # noqa: E402
from labelwise.pool.representations import open_sources  # noqa: E402
from labelwise.pool.sources.device_blocks import DeviceSource, join_tensors, move_to_device  # noqa: E402
from labelwise.pool.sources.source import ArraySource  # noqa: E402
from tests.conftest import make_features  # noqa: E402

NO_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
DEVICES = ["cpu", pytest.param("cuda", marks=NO_GPU)]


def is_on(rows, device):
    return isinstance(rows, torch.Tensor) and rows.device.type == device


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", [np.float32, np.float16, np.int64, ">f8"])
def test_two_passes_over_a_file_give_its_rows(device, kind, tmp_path):
    rows = (100 * make_features(103, 3)).astype(kind)
    np.save(tmp_path / "rows.npy", rows)
    source = move_to_device(open_sources({"features": tmp_path / "rows.npy"}), device)["features"]
    for _ in range(2):
        blocks = [source.read(first, first + 10) for first in range(0, 103, 10)]
        assert all(is_on(block, device) for block in blocks)
        np.testing.assert_array_equal(torch.cat(blocks).cpu().numpy(), rows)


@pytest.mark.parametrize("device", DEVICES)
def test_blocks_out_of_order_and_of_other_sizes_are_right_too(device):
    rows = make_features(200, 4)
    source = move_to_device(open_sources({"features": rows}), device)["features"]
    for first, last in [(50, 60), (0, 70), (70, 90), (90, 160), (160, 300), (5, 5), (0, 200)]:
        block = source.read(first, last)
        np.testing.assert_array_equal(block.cpu().numpy(), rows[first:last])


@pytest.mark.parametrize("device", DEVICES)
def test_a_block_in_use_is_not_overwritten_by_those_after_it(device):
    rows = make_features(60, 2)
    source = move_to_device(open_sources({"features": torch.as_tensor(rows)}), device)["features"]
    first = source.read(0, 10)
    for start in range(10, 60, 10):
        source.read(start, start + 10)
    np.testing.assert_array_equal(first.cpu().numpy(), rows[:10])


@pytest.mark.parametrize("device", DEVICES)
def test_some_rows_are_taken_in_the_order_asked_for(device):
    rows = make_features(30, 2)
    source = move_to_device(open_sources({"features": rows}), device)["features"]
    taken = source.take(np.array([7, 3, 3, 29]))
    assert is_on(taken, device)
    np.testing.assert_array_equal(taken.cpu().numpy(), rows[[7, 3, 3, 29]])


@pytest.mark.parametrize("device", DEVICES)
def test_what_is_on_the_device_already_is_not_copied(device):
    rows = torch.ones((4, 2), device=device)
    source = move_to_device(open_sources({"features": rows}), device)["features"]
    assert isinstance(source, ArraySource)
    assert source.read(0, 4).data_ptr() == rows.data_ptr()


@pytest.mark.parametrize("device", DEVICES)
def test_shards_of_a_file_are_blocks_on_the_device(device, tmp_path):
    rows = make_features(3000, 5)
    np.save(tmp_path / "rows.npy", rows)
    sources = move_to_device(open_sources({"features": [rows, tmp_path / "rows.npy"]}), device)
    assert all(isinstance(part, DeviceSource) for part in sources["features"])
    shards, labelled = open_shards(sources, labelled=[5, 1], block_bytes=40_000)
    parts = shards.map(lambda shard: [part.cpu() for part in shard.rows["features"]])
    assert len(parts) > 3
    for model in range(2):
        found = torch.cat([part[model] for part in parts]).numpy()
        np.testing.assert_array_equal(found, np.delete(rows, [1, 5], axis=0))
        np.testing.assert_array_equal(labelled["features"][model].cpu().numpy(), rows[[5, 1]])


@pytest.mark.parametrize("device", DEVICES)
def test_arrays_join_tensors_are_brought_whole_and_files_in_blocks(device, tmp_path):
    rows = make_features(40, 3)
    np.save(tmp_path / "rows.npy", rows)
    tensor = torch.as_tensor(rows, device=device)
    opened = open_sources({"features": [tensor, rows, tmp_path / "rows.npy"]})
    sources = join_tensors(opened, device)["features"]
    assert [type(source) for source in sources] == [ArraySource, ArraySource, DeviceSource]
    for source in sources:
        assert is_on(source.read(5, 9), device)
        np.testing.assert_array_equal(source.read(5, 9).cpu().numpy(), rows[5:9])


def test_an_array_beside_a_tensor_is_read_where_it_is():
    rows = make_features(40, 3)
    sources = join_tensors(open_sources({"features": [torch.ones((40, 2)), rows]}), "cpu")
    assert sources["features"][1].read(0, 40).data_ptr() == rows.ctypes.data


@pytest.mark.parametrize(
    "change",
    [
        lambda rows: rows.astype(">f8"),
        lambda rows: rows[::-1],
        lambda rows: np.asfortranarray(rows),
        lambda rows: rows.astype(np.longdouble),
        lambda rows: np.frombuffer(rows.tobytes()).reshape(rows.shape),  # read-only
    ],
)
def test_arrays_that_torch_cannot_read_are_copied(change):
    rows = change(make_features(40, 3))
    sources = join_tensors(open_sources({"features": [torch.ones((40, 2)), rows]}), "cpu")
    found = sources["features"][1].read(0, 40).numpy()
    np.testing.assert_array_equal(found, rows)
    assert found.dtype == np.float64


def test_ids_of_a_file_are_kept_beside_a_tensor(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    columns = {"id": [30, 10, 20], "a": [0.5, 0.8, 0.1], "b": [0.5, 0.2, 0.9]}
    parquet.write_table(pyarrow.table(columns), tmp_path / "rows.parquet")
    given = {"features": torch.eye(3), "probabilities": tmp_path / "rows.parquet"}
    assert set(labelwise.select("badge", 2, **given).ids.tolist()) <= {10, 20, 30}


def test_a_device_that_is_not_there_is_refused():
    with pytest.raises(BadInput, match="device is 'abacus', which torch cannot use here"):
        move_to_device({}, "abacus")


@pytest.mark.parametrize("device", DEVICES)
def test_ids_of_a_file_are_kept_on_the_way_to_a_device(device, tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    columns = {"id": [30, 10, 20], "a": [0.0, 5.0, 1.0], "b": [1.0, 5.0, 0.0]}
    parquet.write_table(pyarrow.table(columns), tmp_path / "rows.parquet")
    path = tmp_path / "rows.parquet"
    there = labelwise.select("k_center", 2, features=path, device=device)
    assert there.ids.tolist() == labelwise.select("k_center", 2, features=path).ids.tolist()
    assert there.ids[0] == 10
