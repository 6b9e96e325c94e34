"""`ringmain.bench`: the command `ringmain bench`, with its result as a dict or a DataFrame."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterable
from typing import Any

_Path = str | os.PathLike[str]
# One value, or several to compare.
_Texts = str | Iterable[str]
_Counts = int | Iterable[int]
_Sizes = int | str | Iterable[int | str]


class BenchResult(dict[str, Any]):
    """The result of `ringmain.bench`: the contents of its run.json. "cells" has a dict for each measurement."""

    def to_frame(self) -> Any:
        """Returns a pandas DataFrame with a row for each cell. Columns of nested values have the names of both levels:
        `setting_block_bytes`, `latency_ns_p99`. Time lines and histograms are left out."""
        try:
            import pandas  # type: ignore[import-untyped,import-not-found,unused-ignore]
        except ImportError as error:
            raise ImportError('to_frame needs the package pandas, which is not installed; use result["cells"]') from error
        return pandas.DataFrame([_flat(cell) for cell in self["cells"]])


def bench(
    file: _Path | None = None,
    *,
    dir: _Path | None = None,
    trace: _Path | None = None,
    plan: _Path | None = None,
    backends: _Texts | None = None,
    workloads: _Texts | None = None,
    variants: _Texts | None = None,
    cache: _Texts | None = None,
    block_size: _Sizes | None = None,
    batch: _Counts | None = None,
    depth: _Counts | None = None,
    processes: _Counts | None = None,
    threads: _Counts | None = None,
    window: _Sizes | None = None,
    epochs: int | None = None,
    seconds: float | None = None,
    operations: int | None = None,
    repetitions: int | None = None,
    rate: _Counts | None = None,
    recorded_times: bool = False,
    memory_limit: int | str | None = None,
    buffer_bytes: int | str | None = None,
    seed: int | None = None,
    bytes: int | str | None = None,
    scratch: _Path | None = None,
    with_fio: bool = False,
    out: _Path | None = None,
) -> BenchResult:
    """Compares the backends on this machine, each in its own process, and returns the result as a dict.
    `bench(...).to_frame()` is a pandas DataFrame. Without arguments it takes about two minutes.

    file, dir: the data to read: a file, or the files of a folder. Without them, data is made in `scratch`.
    trace: a recording of `Engine(record=…)` or `ringmain record`, whose reads are replayed.
    plan: a file of `ringmain bench --print-plan` to start from. The other arguments override it.
    backends, workloads, variants, cache: what to compare. `ringmain bench --help` lists the names.
    block_size, batch, depth, processes, threads, window, rate: one value or several. Sizes can be texts such as "64k".
    epochs, seconds, operations, repetitions: how much is measured, and how often.
    recorded_times: starts each read of a trace when it was recorded.
    memory_limit, buffer_bytes: the memory of a measured process, and of its engine's buffers.
    seed: the seed of the data and of the order.
    bytes, scratch: how much data to make, and in which folder.
    with_fio: measures fio too.
    out: a folder for run.json and report.html. By default they are not kept.

    Arguments that make no sense raise a ValueError with the message of the command. Cells that could not be measured as
    asked have "valid": False, and cause a warning.
    """
    options = dict(locals())
    with tempfile.TemporaryDirectory() as own:
        options["out"] = own if out is None else out
        return _run([argument for name, value in options.items() for argument in _arguments(name, value)])


def _arguments(name: str, value: Any) -> list[str]:
    """Returns an option of the command line, or nothing for the default."""
    if value is None or value is False:
        return []
    option = "--" + name.replace("_", "-")
    if value is True:
        return [option]
    if isinstance(value, (str, int, float, os.PathLike)):
        return [f"{option}={os.fspath(value) if isinstance(value, os.PathLike) else value}"]
    try:
        return [f"{option}={','.join(map(str, value))}"]
    except TypeError:
        raise TypeError(f"{name} cannot be of type {type(value).__name__}") from None


def _run(arguments: list[str]) -> BenchResult:
    command = [sys.executable, "-m", "ringmain", "bench", "--json", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            output, said = process.communicate()
        except BaseException:
            # Ctrl-C in a notebook reaches only this process. The command ends its own children.
            process.send_signal(signal.SIGINT)
            process.communicate()
            raise
    if not output:
        message = said.strip().removeprefix("error: ") or f"ringmain bench ended with {process.returncode}"
        raise (ValueError if process.returncode == 2 else RuntimeError)(message)
    if process.returncode != 0:
        warnings.warn(said.strip(), stacklevel=3)
    return BenchResult(json.loads(output))


def _flat(cell: dict[str, Any]) -> dict[str, Any]:
    flat = {}
    for name, value in cell.items():
        if isinstance(value, dict):
            flat.update({f"{name}_{part}": one for part, one in value.items()})
        elif not isinstance(value, list) and name != "latency_histogram":
            flat[name] = value
    return flat
