"""Tracking: the scalars of every round in MLflow or TensorBoard, while a command runs."""

import math
import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol, Self

from labelwise.errors import BadInput, MissingDependency, StorageFailed, first_line

EXPERIMENT = "labelwise"
"""The MLflow experiment of all runs."""


class TrackerBackend(Protocol):
    """Where scalars go."""

    def log(
        self, run: str, step: int, scalars: Mapping[str, float], settings: Mapping[str, object]
    ) -> None:
        """Log finite scalars of one step of a run."""

    def close(self) -> None:
        """Write what is left."""


class Tracker:
    """Logs scalars per step and run; a context manager.

    Example:
        >>> with Tracker(None) as tracker:  # logs nothing
        ...     tracker.log("margin, seed 0", 100, {"accuracy": 0.9})
    """

    def __init__(self, target: str | None) -> None:
        """Open the target: ``mlflow:URI``, ``tensorboard:FOLDER`` or None."""
        self._target, self._backend = (
            target,
            None if target is None else _open_tracker_backend(target),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._backend is not None:
            self._backend.close()

    def log(
        self,
        run: str,
        step: int,
        scalars: Mapping[str, float | None],
        settings: Mapping[str, object] | None = None,
    ) -> None:
        """Log one step of a run; values that are missing or not finite are left out.

        Args:
            run: its name; a run with this name is continued.
            step: such as the number of labels.
            scalars: by name.
            settings: of the run, logged with its first step.
        """
        if self._backend is None:
            return
        known = {k: float(v) for k, v in scalars.items() if v is not None and math.isfinite(v)}
        try:
            self._backend.log(run, step, known, settings or {})
        except Exception as error:  # of a server, a disk or a library; the results are kept
            raise StorageFailed(
                f"cannot log to {self._target} ({first_line(error)}); the rounds so far are kept: "
                "repair it, or leave out --track"
            ) from error


def _open_tracker_backend(target: str) -> TrackerBackend:
    kind, colon, place = target.partition(":")
    backends: dict[str, Callable[[str], TrackerBackend]] = {
        "mlflow": _MlflowBackend,
        "tensorboard": _TensorBoardBackend,
    }
    if kind not in backends or not colon or not place:
        raise BadInput(f"--track is mlflow:URI or tensorboard:FOLDER; got {target!r}")
    try:
        return backends[kind](place)
    except ImportError as error:
        package = "mlflow-skinny" if error.name == "mlflow" else kind  # which opens no databases
        raise MissingDependency(
            f"--track {target} needs the package {error.name}; run pip install {package}"
        ) from error


class _MlflowBackend:
    """Runs of the experiment `EXPERIMENT`."""

    def __init__(self, uri: str) -> None:
        from mlflow import MlflowClient

        try:
            self._client: Any = MlflowClient(tracking_uri=uri)
            found = self._client.get_experiment_by_name(EXPERIMENT)
            self._experiment: str = (
                self._client.create_experiment(EXPERIMENT) if found is None else found.experiment_id
            )
        except ImportError:
            raise
        except Exception as error:
            raise BadInput(f"cannot open the MLflow store {uri} ({first_line(error)})") from error
        self._runs: dict[str, str] = {}

    def log(
        self, run: str, step: int, scalars: Mapping[str, float], settings: Mapping[str, object]
    ) -> None:
        if run not in self._runs:
            self._runs[run] = self._open_mlflow_run(run, settings)
        for name, value in scalars.items():
            self._client.log_metric(self._runs[run], name, value, step=step)

    def _open_mlflow_run(self, name: str, settings: Mapping[str, object]) -> str:
        quoted = name.replace("'", "")
        chosen = f"attributes.run_name = '{quoted}'"
        for found in self._client.search_runs([self._experiment], chosen, max_results=1):
            return str(found.info.run_id)
        made = self._client.create_run(self._experiment, run_name=quoted).info.run_id
        for key, value in settings.items():
            self._client.log_param(made, key, value)
        return str(made)

    def close(self) -> None:
        for run in self._runs.values():
            self._client.set_terminated(run)


class _TensorBoardBackend:
    """One folder of event files per run."""

    def __init__(self, folder: str) -> None:
        from tensorboard.summary import Writer

        self._folder, self._make_writer = Path(folder), Writer
        if self._folder.is_file():
            raise BadInput(f"{folder} is a file; --track tensorboard needs a folder")
        self._writers: dict[str, Any] = {}
        self._closing = ExitStack()

    def log(
        self, run: str, step: int, scalars: Mapping[str, float], settings: Mapping[str, object]
    ) -> None:
        if run not in self._writers:
            writer = self._make_writer(str(self._folder / run.replace(os.sep, "_")))
            self._writers[run] = writer
            self._closing.callback(writer.close)
        for name, value in scalars.items():
            self._writers[run].add_scalar(name, value, step)
        self._writers[run].flush()

    def close(self) -> None:
        self._closing.close()
