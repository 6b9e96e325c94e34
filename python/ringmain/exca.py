"""Makes exca load its arrays as views, and reads exca's info files.

`install()` switches exca over in this process; `uninstall()` undoes it; `with installed():` does both.
"""

from __future__ import annotations

import importlib.util
import inspect
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ._ringmain import ContiguousMemmap, Engine, _read_exca_infos, open_raw

__all__ = ["install", "installed", "open_exca", "uninstall"]

_NEEDED = "exca 0.5.17 or newer"
# The names under which exca stores an array as its bytes in a `.data` file.
_ARRAY_TYPES = ("MemmapArray", "ContiguousMemmapArray", "TorchTensor", "MemmapArrayFile")

_Engine = Engine | str | None


def install(engine: _Engine = None) -> None:
    """Makes exca load every array of its `MemmapArray` and `ContiguousMemmapArray` as a ContiguousMemmap of
    ringmain, in this process and its forked children, until `uninstall` is called.

    engine: an Engine, or the name of a backend. The default is the engine that all views share.

    A second call only replaces the engine. exca's `TorchTensor` reads through the engine too, and still returns
    tensors. exca also dumps the views that it has loaded.
    """
    _installation.set_explicit(_Request(engine))


def uninstall() -> None:
    """Undoes `install`: exca loads arrays as it did before. Views that were loaded stay usable. Without a call of
    `install` before, this does nothing."""
    _installation.set_explicit(None)


@contextmanager
def installed(engine: _Engine = None) -> Iterator[None]:
    """Does `install` for the length of a `with` block.

    Blocks can be nested, and can overlap in several threads: exca is switched back at the end of the last one,
    unless `install` was called too. The engine of the block that began last is used.
    """
    request = _Request(engine)
    _installation.add(request)
    try:
        yield
    finally:
        _installation.remove(request)


def open_exca(
    folder: str | os.PathLike[str],
    info: Mapping[str, Any] | str | os.PathLike[str],
    *,
    engine: _Engine = None,
) -> Any:
    """Returns views of arrays in a cache folder of exca. The package exca need not be installed.

    folder: the folder of a CacheDict or a DumpContext.
    info: the description of one array, as `DumpContext.dump` returns it; or the path of an info file
        (`….jsonl`), relative to the folder. For an info file the result is a dict of views by key. Entries of other
        types are left out.
    engine: an Engine, or the name of a backend. The default is the engine that all views share.
    """
    if isinstance(info, Mapping):
        return _open_array(Path(folder), info, engine)
    described = _read_exca_infos(Path(folder) / info, engine)
    return {key: open_raw(Path(folder) / name, dtype, shape, offset, engine=engine)
            for key, name, offset, shape, dtype in described}  # fmt: skip


def _open_array(folder: Path, info: Mapping[str, Any], engine: _Engine) -> ContiguousMemmap:
    kind = info.get("#type", "MemmapArray")
    if kind not in _ARRAY_TYPES:
        raise ValueError(
            f"this info describes an entry of type {kind!r}, not an array; load it with exca after "
            "ringmain.exca.install()"
        )
    fields = ("filename", "dtype", "shape", "offset")
    missing = [field for field in fields if field not in info]
    if missing:
        raise ValueError(f"this info has no {missing[0]!r}, so it is not the info of an array of exca")
    filename, dtype, shape, offset = (info[field] for field in fields)
    return open_raw(folder / filename, dtype, tuple(shape), offset, engine=engine)


class _Request:
    """One call of `install`, or one `with` block."""

    def __init__(self, engine: _Engine) -> None:
        if isinstance(engine, str):
            Engine(engine)  # raises an error now rather than when the first array is loaded
        elif engine is not None and not isinstance(engine, Engine):
            raise TypeError(f"engine must be an Engine or the name of a backend, not {type(engine).__name__}")
        self.engine = engine


class _Installation:
    """The state of the installation in this process. The lock guards it, but loads read `engine` without the lock."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        # A forked child must not inherit a lock that is held, or a change that is half done.
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(
                before=self._lock.acquire,
                after_in_parent=self._lock.release,
                after_in_child=self._lock.release,
            )
        self._explicit: _Request | None = None
        # The last one decides which engine reads.
        self._requests: list[_Request] = []
        self._undo: list[Callable[[], None]] = []
        self.engine: _Engine = None

    def set_explicit(self, request: _Request | None) -> None:
        exca = None if request is None else _import_exca()
        with self._lock:
            if self._explicit is not None:
                self._requests.remove(self._explicit)
            self._explicit = request
            if request is not None:
                self._requests.append(request)
            self._update(exca)

    def add(self, request: _Request) -> None:
        exca = _import_exca()
        with self._lock:
            self._requests.append(request)
            self._update(exca)

    def remove(self, request: _Request) -> None:
        with self._lock:
            self._requests.remove(request)
            self._update(None)

    def _update(self, exca: SimpleNamespace | None) -> None:
        if self._requests:
            self.engine = self._requests[-1].engine
            if exca is not None and not self._undo:
                self._switch(exca)
            return
        for undo in reversed(self._undo):
            undo()
        self._undo.clear()
        self.engine = None

    def _switch(self, exca: SimpleNamespace) -> None:
        context, handlers = exca.dumpcontext.DumpContext, exca.handlers
        plain, contiguous, tensor = _make_handlers(handlers)
        for name in {"MemmapArray", "MemmapArrayFile"} & set(context.HANDLERS):
            self._put(context.HANDLERS, name, plain)
        self._put(context.HANDLERS, "ContiguousMemmapArray", contiguous)
        self._put(context.HANDLERS, "TorchTensor", tensor)
        self._put(context.TYPE_DEFAULTS, ContiguousMemmap, contiguous)
        # exca's code and tests ask whether an array is an instance of its class.
        for module in (exca.contiguous, handlers):
            self._put(vars(module), "ContiguousMemmap", ContiguousMemmap)

    def _put(self, table: dict[Any, Any], key: Any, value: Any) -> None:
        """Replaces an entry. Undoing that leaves an entry alone that somebody else has replaced since."""
        was_there, before = key in table, table.get(key)
        table[key] = value

        def undo() -> None:
            if table.get(key) is not value:
                return
            if was_there:
                table[key] = before
            else:
                del table[key]

        self._undo.append(undo)


_installation = _Installation()


def _make_handlers(handlers: Any) -> tuple[type, type, type]:
    """Returns the handlers that replace exca's. exca writes the names of these classes into its info files.

    exca's own classes stay as they are, because other handlers call them and need an np.memmap.
    """

    def load(ctx: Any, filename: str, offset: int, shape: Any, dtype: str) -> ContiguousMemmap:
        return open_raw(ctx.folder / filename, dtype, tuple(shape), offset, engine=_installation.engine)

    class MemmapArray(handlers.MemmapArray):  # type: ignore[misc]
        @classmethod
        def __load_from_info__(cls, ctx: Any, **info: Any) -> ContiguousMemmap:
            return load(ctx, **info)

    class ContiguousMemmapArray(handlers.ContiguousMemmapArray):  # type: ignore[misc]
        @classmethod
        def __load_from_info__(cls, ctx: Any, **info: Any) -> ContiguousMemmap:
            return load(ctx, **info)

    class TorchTensor(handlers.TorchTensor):  # type: ignore[misc]
        @classmethod
        def __load_from_info__(cls, ctx: Any, **info: Any) -> Any:
            import torch

            return torch.from_dlpack(load(ctx, **info))

    return MemmapArray, ContiguousMemmapArray, TorchTensor


def _import_exca() -> SimpleNamespace:
    """Returns the modules of exca whose contents are replaced, or raises an ImportError that says what to install."""
    if importlib.util.find_spec("exca") is None:
        raise ImportError(f"ringmain.exca needs the package exca, which is not installed: install {_NEEDED}")
    try:
        from exca.cachedict import contiguous, dumpcontext, handlers
    except ImportError as error:
        # Another package that exca needs may be missing.
        if error.name is not None and error.name.partition(".")[0] != "exca":
            raise
        raise _unsupported("it has no module exca.cachedict.contiguous") from error
    exca = SimpleNamespace(contiguous=contiguous, dumpcontext=dumpcontext, handlers=handlers)
    if reason := _what_differs(exca):
        raise _unsupported(reason)
    return exca


def _what_differs(exca: SimpleNamespace) -> str | None:
    """Says how exca differs from what this module replaces; `None` if it does not."""
    for name in ("MemmapArray", "ContiguousMemmapArray", "TorchTensor"):
        if not hasattr(exca.handlers, name) or name not in exca.dumpcontext.DumpContext.HANDLERS:
            return f"it has no handler {name}"
    if not hasattr(exca.contiguous, "ContiguousMemmap"):
        return "it has no class ContiguousMemmap"
    parameters = list(inspect.signature(exca.handlers.MemmapArray.__load_from_info__).parameters)
    if parameters != ["ctx", "filename", "offset", "shape", "dtype"]:
        return f"its MemmapArray loads from {', '.join(parameters)}"
    return None


def _unsupported(reason: str) -> ImportError:
    from importlib.metadata import PackageNotFoundError, version

    try:
        found = f"exca {version('exca')}"
    except PackageNotFoundError:
        found = "this exca"
    return ImportError(f"ringmain.exca does not support {found}: {reason}; install {_NEEDED}")
