"""`.beton` files in torch DataLoaders. Torch is optional: without it pytest skips these tests."""

import pickle

import numpy as np
import pytest
from beton_files import EXPECTED, VECTOR, check_sample

import ringmain

torch = pytest.importorskip("torch", reason="torch is not installed")

from ringmain.torch import BetonDataset  # noqa: E402



def test_items_are_samples():
    dataset = BetonDataset(VECTOR)
    assert len(dataset) == 300
    check_sample(dataset[7], EXPECTED["samples"][7], "decoded")
    check_sample(dataset[-1], EXPECTED["samples"][-1], "decoded")
    several = dataset.__getitems__([3, 141, 3])
    for found, id in zip(several, [3, 141, 3], strict=True):
        check_sample(found, EXPECTED["samples"][id], "decoded")
        assert type(found["label"]) is int and type(found["score"]) is float
        assert type(found["blob"]) is bytes
    assert "300 samples" in repr(dataset)


def test_a_transform_is_applied_to_each_sample():
    def take(sample):
        return sample["label"], sample["mat"]

    dataset = BetonDataset(VECTOR, transform=take)
    label, mat = dataset[3]
    assert label == EXPECTED["samples"][3]["label"]
    again = dataset.__getitems__([3])[0]
    assert again[0] == label
    np.testing.assert_array_equal(again[1], mat)


def label_and_mat(sample):
    return sample["label"], sample["mat"]


@pytest.mark.parametrize(("workers", "method"), [(0, None), (2, "fork"), (2, "spawn")])
def test_a_loader_reads_each_batch_at_once(workers, method):
    engine = ringmain.Engine("pread")
    dataset = BetonDataset(VECTOR, transform=label_and_mat, engine=engine)
    loader = torch.utils.data.DataLoader(
        dataset, batch_size=64, num_workers=workers, multiprocessing_context=method
    )
    before = engine.stats()["batches"]
    found = [(labels, mats) for labels, mats in loader]
    assert len(found) == len(loader) == 5
    assert torch.cat([labels for labels, _ in found]).tolist() == [
        sample["label"] for sample in EXPECTED["samples"]
    ]
    assert found[0][1].dtype == torch.as_tensor(dataset[0][1]).dtype
    if workers == 0:
        assert engine.stats()["batches"] - before == 5 + 1, "one for each batch, and one for dataset[0]"


def image_and_label(sample):
    return sample["img"], sample["label"]


def test_a_loader_collates_images_of_one_size():
    dataset = BetonDataset(VECTOR, transform=image_and_label, resize=(32, 24), center_crop=0.9)
    loader = torch.utils.data.DataLoader(dataset, batch_size=50)
    images, labels = next(iter(loader))
    assert images.shape == (50, 32, 24, 3) and images.dtype == torch.uint8 and len(labels) == 50
    np.testing.assert_array_equal(images[7], dataset[7][0])


def test_a_pickle_opens_the_file_again():
    dataset = pickle.loads(pickle.dumps(BetonDataset(VECTOR, images="stored")))
    check_sample(dataset[1], EXPECTED["samples"][1], "stored")


def test_the_error_for_images_of_several_sizes_names_resize():
    """The error was torch's: "stack expects each tensor to be equal size"."""
    loader = torch.utils.data.DataLoader(BetonDataset(VECTOR), batch_size=8)
    with pytest.raises(RuntimeError, match=r"field 'img' have different shapes.*resize=\(height, width\)"):
        list(loader)
    dataset = BetonDataset(VECTOR, resize=(8, 8))
    batch = next(iter(torch.utils.data.DataLoader(dataset, batch_size=3)))
    assert type(batch) is dict and batch["img"].shape == (3, 8, 8, 3) and batch["label"].shape == (3,)
    assert isinstance(dataset[0], dict)
