"""How long per-item gradient norms and products take and how much memory, and what peers take.

Run: PYTHONPATH=src python benchmarks/gradient_speed.py --device cpu --out gradients.jsonl

One JSON object per line, for one way on one network. The ways take turns in one process, so that
their ratios hold on a busy machine too; time is the median of the rounds after one that is thrown
away. ``times_plain`` is the ratio to one plain forward and backward pass of the summed loss in
eval mode, the same function. Memory is the peak above what the network, its gradients and the batch
take: on a GPU as the allocator counts it, on a CPU in a fresh process per way. ``precision`` says
what float32 means on a GPU: ``default`` is torch's (convolutions round to TF32, matrix products do
not), ``ieee`` rounds nowhere, ``tf32`` everywhere. A way that cannot run says why.
"""

import argparse
import copy
import os
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from networks import NETWORKS
from one_run import Meter, run_alone, write_line
from torch import Tensor
from torch.func import functional_call, grad, vmap
from torch.nn import functional

from labelwise.learners.gradients import (
    gradient_norms,
    gradient_norms_and_products,
    gradient_products,
)

BATCH = {"cpu": {"small_cnn": 256, "resnet18": 64}, "cuda": {"small_cnn": 4096, "resnet18": 1024}}
SEED, WARM_UP_ITEMS = 0, 4

Answer = dict[str, Tensor]
"""``norms`` and ``products``, as far as a way gives them."""


class Job:
    """A network, a batch and a vector over the parameters."""

    def __init__(self, network: str, items: int, device: str) -> None:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(SEED)
            self.module = NETWORKS[network]().to(device).eval()
            self.x = torch.randn(items, 3, 32, 32).to(device)
            self.y = torch.randint(10, (items,)).to(device)
            parameters = dict(self.module.named_parameters())
            self.vector = {k: torch.randn(p.shape).to(device) for k, p in parameters.items()}
        self.extended: torch.nn.Module | None = None  # a copy with BackPACK's hooks

    def few(self) -> "Job":
        """The same with a few items."""
        job = copy.copy(self)
        job.x, job.y = self.x[:WARM_UP_ITEMS], self.y[:WARM_UP_ITEMS]
        return job


def loss(outputs: Tensor, targets: Tensor) -> Tensor:
    """One loss per item."""
    return functional.cross_entropy(outputs, targets, reduction="none")


def plain(job: Job) -> Answer:
    """One forward and backward pass of the summed loss."""
    for parameter in job.module.parameters():
        parameter.grad = None
    loss(job.module(job.x), job.y).sum().backward()
    return {}


def ours(job: Job) -> Answer:
    """Norms and products together."""
    norms, products = gradient_norms_and_products(job.module, job.x, job.y, job.vector, loss)
    return {"norms": norms, "products": products}


def our_norms(job: Job) -> Answer:
    """Norms alone."""
    return {"norms": gradient_norms(job.module, job.x, job.y, loss)}


def our_products(job: Job) -> Answer:
    """Products alone."""
    return {"products": gradient_products(job.module, job.x, job.y, job.vector, loss)}


def mapped(job: Job) -> Answer:
    """Norms and products from the gradients of all items, by torch.func."""

    def one(parameters: Answer, x: Tensor, y: Tensor) -> Tensor:
        return loss(functional_call(job.module, parameters, x[None]), y[None])[0]

    parameters = {k: p.detach() for k, p in job.module.named_parameters()}
    gradients = vmap(grad(one), in_dims=(None, 0, 0))(parameters, job.x, job.y)
    flat = {k: g.flatten(1) for k, g in gradients.items()}
    return {
        "norms": sum(g.square().sum(1) for g in flat.values()),
        "products": sum(g @ job.vector[k].flatten() for k, g in flat.items()),
    }


def backpack_norms(job: Job) -> Answer:
    """Norms alone, by BackPACK's batch_l2."""
    from backpack import backpack, extend
    from backpack.extensions import BatchL2Grad

    if job.extended is None:
        job.extended = extend(copy.deepcopy(job.module))
    module = job.extended
    for parameter in module.parameters():
        parameter.grad = None
    with backpack(BatchL2Grad()):
        functional.cross_entropy(module(job.x), job.y, reduction="sum").backward()
    return {"norms": sum(p.batch_l2 for p in module.parameters())}


WAYS: dict[str, tuple[str, str, Callable[[Job], Answer]]] = {
    "plain": ("torch", "summed gradient", plain),
    "labelwise": ("labelwise", "norms and products", ours),
    "labelwise norms": ("labelwise", "norms", our_norms),
    "labelwise products": ("labelwise", "products", our_products),
    "vmap": ("torch", "norms and products", mapped),
    "backpack": ("backpack-for-pytorch", "norms", backpack_norms),
}
"""Package, what is computed, and the call."""


def main() -> None:
    """Measure every way on every network."""
    arguments = read_arguments()
    if arguments.device == "cpu":
        torch.set_num_threads(arguments.threads)
    elif arguments.precision != "default":
        torch.backends.cudnn.allow_tf32 = arguments.precision == "tf32"
        torch.backends.cuda.matmul.allow_tf32 = arguments.precision == "tf32"
    for network in arguments.networks:
        items = arguments.items or BATCH[arguments.device][network]
        job = Job(network, items, arguments.device)
        seconds, answers, errors = timed(job, arguments)
        for way, (package, quantity, _) in WAYS.items():
            line = {
                "benchmark": "gradient_speed",
                "network": network,
                "parameters": sum(p.numel() for p in job.module.parameters()),
                "items": items,
                "way": way,
                "gives": quantity,
                "version": version(package),
            }
            if way in errors:
                line["error"] = errors[way]
            else:
                line |= summary(seconds[way], seconds["plain"])
                line |= distance(answers[way], answers["vmap"]) if "vmap" in answers else {}
                line |= peak(job, network, way, arguments)
            write_line(line | circumstances(arguments), arguments.out)


def read_arguments() -> argparse.Namespace:
    """What was asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--device", choices=["cpu", "cuda"], default="cpu")
    add("--networks", nargs="+", choices=list(NETWORKS), default=list(NETWORKS))
    add("--items", type=int, help="in a batch (default: by device and network)")
    add("--rounds", type=int, default=7)
    add("--threads", type=int, default=os.cpu_count(), help="of the CPU (default: all cores)")
    add("--precision", choices=["default", "ieee", "tf32"], default="default")
    add("--limit", type=float, default=300, help="most seconds of one call (default 300)")
    add("--memory", type=float, default=20, help="most gigabytes of one process (default 20)")
    add("--out", type=Path, help="append the lines to this file too")
    return parser.parse_args()


def timed(
    job: Job, arguments: argparse.Namespace
) -> tuple[dict[str, list[float]], dict[str, Answer], dict[str, str]]:
    """Seconds per round, answers and errors, by way; the ways take turns."""
    seconds: dict[str, list[float]] = {way: [] for way in WAYS}
    answers: dict[str, Answer] = {}
    errors: dict[str, str] = {}
    for _ in range(arguments.rounds + 1):
        for way in WAYS:
            if way in errors:
                continue
            try:
                begin = clock(arguments.device)
                answers[way] = WAYS[way][2](job)
                seconds[way].append(clock(arguments.device) - begin)
            except Exception as error:  # a peer that cannot run is reported
                errors[way] = f"{type(error).__name__}: {str(error).strip().splitlines()[0]}"
    return {way: values[1:] for way, values in seconds.items()}, answers, errors


def clock(device: str) -> float:
    """Seconds, after all that was asked of the device is done."""
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def summary(seconds: list[float], base: list[float]) -> dict[str, Any]:
    """Time and its ratio to the plain pass."""
    median = statistics.median(seconds)
    return {
        "seconds": [round(value, 6) for value in seconds],
        "median_seconds": round(median, 6),
        "times_plain": round(median / statistics.median(base), 3),
    }


def distance(answer: Answer, truth: Answer) -> dict[str, float]:
    """The largest difference from the gradients formed one by one, relative to the largest."""
    off = {name: values - truth[name] for name, values in answer.items()}
    worst = {name: float(o.abs().max() / truth[name].abs().max()) for name, o in off.items()}
    return {f"{name}_off_by": float(f"{value:.2e}") for name, value in worst.items()}


def peak(job: Job, network: str, way: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """The most memory of one call above what was there before."""
    if arguments.device == "cuda":
        forget(job)
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        WAYS[way][2](job)
        bytes_ = torch.cuda.max_memory_allocated() - before
        return {"peak_megabytes": round(bytes_ / 1e6, 1)}
    task = {
        "network": network,
        "items": len(job.x),
        "way": way,
        "limit": arguments.limit,
        "memory_gigabytes": arguments.memory,
    }
    found = run_alone("gradient_speed", "alone", task, arguments.threads)
    return found if "peak_megabytes" in found else {"peak_error": found["error"]}


def alone(task: dict[str, Any]) -> dict[str, Any]:
    """The peak of one way on the CPU; this runs in a process of its own."""
    job = Job(task["network"], task["items"], "cpu")
    call = WAYS[task["way"]][2]
    meter = Meter(task["limit"])
    few = job.few()
    meter.warm_up(lambda: call(few))
    job.extended = few.extended
    forget(job)
    meter.measure(lambda: call(job))
    return {"peak_megabytes": round(meter.peak_bytes / 1e6, 1)}


def forget(job: Job) -> None:
    """Drop what earlier calls left in the modules."""
    for module in (job.module, job.extended):
        for parameter in module.parameters() if module else ():
            parameter.grad = None


def version(package: str) -> str | None:
    """The installed version, or None."""
    from importlib import metadata

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def circumstances(arguments: argparse.Namespace) -> dict[str, Any]:
    """The machine and the libraries: what one must know to repeat a line."""
    on_gpu = arguments.device == "cuda"
    return {
        "seed": SEED,
        "device": torch.cuda.get_device_name() if on_gpu else platform.processor() or "cpu",
        "precision": arguments.precision if on_gpu else "ieee",
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "load_average": round(os.getloadavg()[0], 2),
    }


if __name__ == "__main__":
    main()
