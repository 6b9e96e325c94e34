"""A torch dataset over a `.beton` file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from torch.utils.data import Dataset
from torch.utils.data._utils import collate

from ._ringmain import Beton


class Sample(dict[str, Any]):
    """A sample. Its class lets `_collate` give a better error than torch's."""


def _collate(batch: Sequence[Sample], *, collate_fn_map: Any = None) -> dict[str, Any]:
    """Collates samples as torch does with dicts."""
    collated = {}
    for name in batch[0]:
        values = [sample[name] for sample in batch]
        try:
            collated[name] = collate.collate(values, collate_fn_map=collate_fn_map)
        except RuntimeError as error:
            shapes = {getattr(value, "shape", None) for value in values}
            if len(shapes) == 1:
                raise
            raise RuntimeError(
                f"the values of field {name!r} have different shapes, so they cannot become one "
                f"tensor: for images, pass resize=(height, width) to BetonDataset, or crop them in "
                f"`transform`; otherwise pass a collate_fn to the DataLoader"
            ) from error
    return collated


collate.default_collate_fn_map[Sample] = _collate


class BetonDataset(Dataset[Any]):
    """The samples of a `.beton` file. Each sample is a dict by field name.

    A DataLoader reads the samples of a batch together, as one batch of reads. Its samplers, its
    workers and its `collate_fn` work as with any other dataset that has a length.

    path: the file.
    transform: a function that gets a sample and returns the item that the dataset delivers.
    images_transform: the `transform` of ringmain.Beton, which changes the images of a batch in place.
    options: all other options of ringmain.Beton. A DataLoader has its own workers, so one thread decodes,
        unless `decode_threads` says otherwise.
    """

    def __init__(
        self,
        path: Any,
        *,
        transform: Callable[[dict[str, Any]], Any] | None = None,
        images_transform: Callable[[Any, Any], None] | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        self.beton = Beton(path, transform=images_transform, **{"decode_threads": 1, **options})
        self.transform = transform

    def __len__(self) -> int:
        return len(self.beton)

    def __getitem__(self, index: int) -> Any:
        return self._deliver(self.beton[index])

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """Reads several samples as one batch of reads. A DataLoader calls this for each batch."""
        batch = self.beton.read_batch(indices)
        kinds = {name: field["kind"] for name, field in self.beton.fields.items()}
        return [
            self._deliver({name: _value(kinds[name], batch[name], at) for name in batch})
            for at in range(len(indices))
        ]

    def __repr__(self) -> str:
        return f"BetonDataset({self.beton!r})"

    def _deliver(self, sample: dict[str, Any]) -> Any:
        return Sample(sample) if self.transform is None else self.transform(sample)


def _value(kind: str, column: Any, at: int) -> Any:
    """Returns the value of one sample, in the type that `beton[id]` returns."""
    if isinstance(column, dict):
        return {name: part[at] for name, part in column.items()}
    if kind in ("int", "float"):
        return column[at].item()
    if kind == "bytes":
        return np.asarray(column[at]).tobytes()
    return column[at]
