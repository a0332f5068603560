"""A picture of images that gradient ascent on their predicted dual variables changes.

One image per row, one column per measured number of steps, with the predicted dual of each::

    python benchmarks/generated_inputs.py --out docs/results/pictures/ally_generated.png
"""

import argparse

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from labelwise.benchmark.devices import find_benchmark_device
from labelwise.benchmark.protocols import get_experiment
from labelwise.benchmark.studies.generation import generate_dual_ascent

parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
parser.add_argument("--out", required=True, help="PNG file")
parser.add_argument("--images", type=int, default=6, help="number of rows")
parser.add_argument("--seed", type=int, default=0)
arguments = parser.parse_args()

protocol = get_experiment("ally-fig1-generation")
path, _ = generate_dual_ascent(protocol, arguments.seed, find_benchmark_device("cpu"))
steps = protocol.settings["steps"]
figure, axes = plt.subplots(
    arguments.images, len(steps), figsize=(1.1 * len(steps), 1.3 * arguments.images)
)
for row, axis_row in enumerate(axes):
    for step, axis in zip(steps, axis_row, strict=True):
        axis.imshow(path.inputs[step, row, 0], cmap="gray")
        axis.set_title(f"{path.duals[step, row]:.3f}", fontsize=8, pad=2)
        axis.set_axis_off()
for step, axis in zip(steps, axes[0], strict=True):
    axis.text(0.5, 1.32, f"{step} steps", transform=axis.transAxes, ha="center", fontsize=8)
figure.savefig(arguments.out, dpi=110, bbox_inches="tight")
