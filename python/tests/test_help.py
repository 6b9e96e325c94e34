"""help() explains every argument."""

import inspect
import pydoc
import subprocess
import sys

import pytest

import ringmain
import ringmain.safetensors
import ringmain.safetensors.numpy

CLASSES = [
    ringmain.Beton,
    ringmain.BetonEpoch,
    ringmain.BetonWriter,
    ringmain.ContiguousMemmap,
    ringmain.Engine,
    ringmain.MappedWeights,
    ringmain.WeightCache,
    ringmain.ShardSource,
    ringmain.ShardWriter,
]
FUNCTIONS = [ringmain.bench, ringmain.exca.install, ringmain.exca.installed, ringmain.open_exca, ringmain.open_npy, ringmain.open_raw, ringmain.probe, ringmain.read_many]


def public(kind):
    return {name: value for name, value in vars(kind).items() if not name.startswith("_")}


def arguments(value):
    try:
        parameters = inspect.signature(value).parameters
    except ValueError:  # the class has no constructor
        return {}
    return {name: one for name, one in parameters.items() if name != "self"}


@pytest.mark.parametrize("value", [*CLASSES, *FUNCTIONS], ids=lambda value: value.__name__)
def test_every_argument_is_explained(value):
    text = inspect.getdoc(value)
    for name in arguments(value):
        assert name in text.replace(",", " ").replace(":", " ").replace("`", " ").split(), name


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_every_method_is_explained(kind):
    for name, value in public(kind).items():
        text = inspect.getdoc(value)
        assert text, f"{kind.__name__}.{name}"
        for argument in arguments(value) if callable(value) else ():
            assert argument in text, f"{kind.__name__}.{name}: {argument}"


@pytest.mark.parametrize("value", [*CLASSES, *FUNCTIONS], ids=lambda value: value.__name__)
def test_signatures_contain_no_rust_syntax(value):
    values = [value] if inspect.isroutine(value) else [value, *filter(callable, public(value).values())]
    for each in values:
        for name, one in arguments(each).items():
            # `...` stands for a default that cannot be shown, except for `selection`, where it means
            # everything.
            assert one.default is not Ellipsis or name == "selection", f"{each}: {name}"
    text = pydoc.plain(pydoc.render_doc(value))
    assert "r#" not in text and "self::" not in text.lower() and "Option<" not in text


def test_help_lists_refused_attributes_apart_from_supported_ones():
    assert "mean" not in vars(ringmain.ContiguousMemmap)
    text = pydoc.plain(pydoc.render_doc(ringmain.ContiguousMemmap))
    own, _, inherited = text.partition("inherited from")
    assert "| mean" not in " ".join(own.split()) and "mean" in inherited


def test_safetensors_functions_explain_their_arguments():
    for value in (ringmain.safetensors.safe_open, ringmain.safetensors.numpy.load_file):
        for name in ("backend", "engine"):
            assert name in inspect.getdoc(value)


def test_an_engine_describes_its_backend(available):
    text = ringmain.Engine().describe()
    assert "backend auto" in text and "`pread`" in text
    assert "auto" in inspect.getdoc(ringmain.Engine.backend) and "describe" in inspect.getdoc(ringmain.Engine.backend)


@pytest.mark.parametrize("kind", [ringmain.BetonEpoch, ringmain.ShardSource])
def test_the_rule_of_loops_is_explained(kind):
    """Only the documentation of ShardSource told what the loop after a loop reads."""
    text = " ".join(inspect.getdoc(kind).split())
    assert "a new loop begins the next epoch" in text and "After a `break`" in text


def test_defaults_are_explained():
    """The signature shows only None for them."""
    text = " ".join(inspect.getdoc(ringmain.Engine).split())
    for default in ("128 by default", "1 MiB by default", '"keep", the default', "at most 512", "8 by default"):
        assert default in text
    assert "256 by default" in inspect.getdoc(ringmain.Beton.epoch)
    assert "by default the number of processors" in inspect.getdoc(ringmain.BetonWriter)


@pytest.mark.parametrize("kind", [ringmain.Beton, ringmain.ContiguousMemmap])
def test_help_says_what_an_index_can_be(kind):
    """Python shows only "Return self[key]." for `__getitem__`, so the text of the class says it."""
    text = " ".join(inspect.getdoc(kind).split())
    assert ("a negative `id` counts from the end" if kind is ringmain.Beton else "The key has integers, slices") in text


def test_modules_are_found_without_an_import():
    """`import ringmain; ringmain.safetensors` was an AttributeError."""
    script = (
        "import sys, ringmain; assert 'ringmain.safetensors' not in sys.modules\n"
        "assert 'safetensors' in dir(ringmain) and 'ShardWriter' in dir(ringmain)\n"
        "assert callable(ringmain.safetensors.safe_open) and not hasattr(ringmain, 'colour')"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120)


def test_without_torch_the_attribute_is_the_error_of_its_import():
    script = (
        "import sys; sys.modules['torch'] = None\n"
        "import pydoc, ringmain; assert 'torch' not in dir(ringmain); pydoc.render_doc(ringmain)\n"
        "try: ringmain.torch\n"
        "except ImportError as error: assert 'ringmain.ShardSource' in str(error)\n"
        "else: raise SystemExit(1)"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120)


def test_with_torch_the_attribute_is_the_module():
    pytest.importorskip("torch", reason="torch is not installed")
    script = "import ringmain; assert 'torch' in dir(ringmain); ringmain.torch.ShardDataset"
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120)
