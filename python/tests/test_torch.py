"""Tensors from views. Torch is optional: without it pytest skips these tests and says so."""

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
    # The constructor of torch always makes float32, on the way of DLPack.
    assert torch.equal(torch.Tensor(view), torch.as_tensor(view))
    assert torch.equal(torch.DoubleTensor(view), torch.as_tensor(view).double())
    assert torch.Tensor(view[3, 4, ...]).item() == np.asarray(view)[3, 4]
    if view.engine.backend == "pread":
        assert reads_of(lambda: torch.as_tensor(view[3:5])) == 1
        assert reads_of(lambda: torch.Tensor(view[3:5])) == 1
        assert reads_of(lambda: torch.from_dlpack(view[3:5])) == 1


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", ">f4", ">i2", "<f4"])
def test_tensors_of_types_that_differ_between_numpy_and_torch(tmp_path, dtype):
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed")
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    array = np.arange(12).astype(kind).reshape(3, 4)
    (tmp_path / "file").write_bytes(array.tobytes())
    view = ringmain.open_raw(tmp_path / "file", kind, (3, 4))
    expected = torch.arange(12, dtype=torch.float32).reshape(3, 4)
    for tensor in (torch.as_tensor(view), torch.asarray(view), torch.from_dlpack(view)):
        native = getattr(torch, np.dtype(kind).newbyteorder("=").name)
        assert tensor.dtype == native and tensor.shape == (3, 4)
        assert torch.equal(tensor.to(torch.float32), expected)


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_out_can_be_a_tensor(tmp_path, dtype):
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed")
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    (tmp_path / "file").write_bytes(np.arange(12).astype(kind).tobytes())
    view = ringmain.open_raw(tmp_path / "file", kind, (3, 4))
    expected = torch.arange(12, dtype=torch.float32).reshape(3, 4).to(getattr(torch, dtype))
    out = torch.zeros(3, 4, dtype=expected.dtype)
    assert view.read(out=out) is out and torch.equal(out, expected)
    out = torch.zeros(2, 4, dtype=expected.dtype)
    assert view.read([2, 0], out=out) is out and torch.equal(out, expected[[2, 0]])
    out = torch.zeros(2, 4, dtype=expected.dtype)
    assert ringmain.read_many([view[1], view[2]], out=out) is out and torch.equal(out, expected[1:])
    parts = [torch.zeros(4, dtype=expected.dtype) for _ in range(2)]
    assert ringmain.read_many([view[1], view[2]], out=parts) is parts
    assert torch.equal(torch.stack(parts), expected[1:])
    with pytest.raises(TypeError, match="out has dtype"):
        view.read(out=torch.zeros(3, 4, dtype=torch.int64))
    swapped = ringmain.open_raw(tmp_path / "file", ">f4", -1)
    with pytest.raises(TypeError, match=r"byte order; read without `out`.*astype\(out\.dtype\)"):
        swapped.read(out=torch.zeros(swapped.shape, dtype=torch.float32))
    with pytest.raises(ValueError, match="contiguous"):
        view.read(out=torch.zeros(4, 3, dtype=expected.dtype).T)
    with pytest.raises(TypeError, match="out must be an array or a tensor"):
        view.read(out="here")


def test_arrays_are_collated(view):
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
def test_the_workers_of_a_loader_read_a_view(view, backend, context):
    if context != "fork" and backend != "auto":
        pytest.skip("a spawned process inherits nothing, so one backend is enough")
    np.asarray(view)
    loader = torch.utils.data.DataLoader(
        Rows(view), batch_size=32, num_workers=2, multiprocessing_context=context
    )
    read = torch.cat(list(loader)).numpy()
    np.testing.assert_array_equal(read, np.asarray(view))


def test_a_single_bfloat16_becomes_a_tensor(tmp_path):
    """Torch cannot convert the scalars of ml_dtypes. With an ellipsis the element stays a view."""
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed")
    np.arange(12).astype(ml_dtypes.bfloat16).tofile(tmp_path / "file")
    view = ringmain.open_raw(tmp_path / "file", "bfloat16", (3, 4))
    tensor = torch.as_tensor(view[2, 3, ...])
    assert tensor.dtype == torch.bfloat16 and tensor.shape == () and tensor == 11
