"""Write the small ONNX models of the tests; needs the package onnx.

python tests/data/encoders/make_models.py
"""

from pathlib import Path

import numpy as np
from onnx import TensorProto, helper, numpy_helper
from tokenizers import Tokenizer, models, pre_tokenizers

HERE = Path(__file__).parent


def write(name, nodes, inputs, outputs, weights=()):
    graph = helper.make_graph(nodes, name, inputs, outputs, weights)
    opset = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=opset, ir_version=8)
    (HERE / f"{name}.onnx").write_bytes(model.SerializeToString(deterministic=True))


def value(name, kind, shape):
    return helper.make_tensor_value_info(name, kind, shape)


def main():
    mean = helper.make_node("GlobalAveragePool", ["images"], ["map"])
    write(
        "mean_of_floats",  # (b, 3, 8, 8) floats to a map (b, 3, 1, 1)
        [mean],
        [value("images", TensorProto.FLOAT, ["b", 3, 8, 8])],
        [value("map", TensorProto.FLOAT, ["b", 3, 1, 1])],
    )
    cast = helper.make_node("Cast", ["images"], ["floats"], to=TensorProto.FLOAT)
    mean = helper.make_node("ReduceMean", ["floats"], ["rows"], axes=[1, 2], keepdims=0)
    write(
        "mean_of_bytes",  # two images of (6, 6, 3) bytes at a time
        [cast, mean],
        [value("images", TensorProto.UINT8, [2, 6, 6, 3])],
        [value("rows", TensorProto.FLOAT, [2, 3])],
    )
    table = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    write(
        "words",  # a vector per word
        [helper.make_node("Gather", ["table", "input_ids"], ["tokens"])],
        [value("input_ids", TensorProto.INT64, ["b", "t"])],
        [value("tokens", TensorProto.FLOAT, ["b", "t", 4])],
        [numpy_helper.from_array(table, "table")],
    )
    write(
        "rows",  # not an encoder of images or texts
        [helper.make_node("Identity", ["rows"], ["same"])],
        [value("rows", TensorProto.FLOAT, ["b", 5])],
        [value("same", TensorProto.FLOAT, ["b", 5])],
    )
    words = {"?": 0, "a": 1, "red": 2, "rose": 3, "oak": 4}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(HERE / "tokenizer.json"), pretty=False)


if __name__ == "__main__":
    main()
