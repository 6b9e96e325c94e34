"""Tensors of views. Torch is not a dependency: without it these are skipped, and pytest says so."""

import numpy as np
import pytest

import ringmain

torch = pytest.importorskip("torch", reason="torch is not installed")


@pytest.fixture
def view(mapped, engine):
    return ringmain.ContiguousMemmap(mapped(np.arange(60_000, dtype=np.float32).reshape(300, 200)), engine=engine)


def test_a_tensor_is_one_read(view, reads_of):
    tensor = torch.as_tensor(view[3:5])
    assert tensor.dtype == torch.float32
    np.testing.assert_array_equal(tensor.numpy(), np.asarray(view[3:5]))
    np.testing.assert_array_equal(torch.from_dlpack(view).numpy(), np.asarray(view))
    if view.engine.backend == "pread":
        assert reads_of(lambda: torch.as_tensor(view[3:5])) == 1
        assert reads_of(lambda: torch.from_dlpack(view[3:5])) == 1


def test_batches_are_collated(view):
    batch = torch.utils.data.default_collate([np.asarray(view[row]) for row in range(4)])
    assert batch.shape == (4, 200)


class Rows(torch.utils.data.Dataset):
    def __init__(self, view):
        self.view = view

    def __len__(self):
        return len(self.view)

    def __getitem__(self, index):
        return np.asarray(self.view[index])


@pytest.mark.parametrize("context", ["fork", "spawn", "forkserver"])
def test_workers_of_a_loader(view, backend, context):
    if context != "fork" and backend != "auto":
        pytest.skip("what a new process makes does not depend on the backend")
    np.asarray(view)
    loader = torch.utils.data.DataLoader(
        Rows(view), batch_size=32, num_workers=2, multiprocessing_context=context
    )
    read = torch.cat(list(loader)).numpy()
    np.testing.assert_array_equal(read, np.asarray(view))
