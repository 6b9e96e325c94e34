"""What help() says: every argument is explained where a user looks for it."""

import inspect
import pydoc

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
    ringmain.ShardSource,
]
FUNCTIONS = [ringmain.open_npy, ringmain.open_raw, ringmain.probe, ringmain.read_many]


def public(kind):
    return {name: value for name, value in vars(kind).items() if not name.startswith("_")}


def arguments(value):
    try:
        parameters = inspect.signature(value).parameters
    except ValueError:  # it cannot be constructed
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
def test_signatures_are_those_of_python(value):
    values = [value] if inspect.isroutine(value) else [value, *filter(callable, public(value).values())]
    for each in values:
        for name, one in arguments(each).items():
            # Of a selection it is a value: everything.
            assert one.default is not Ellipsis or name == "selection", f"{each}: {name}"
    text = pydoc.plain(pydoc.render_doc(value))
    assert "r#" not in text and "self::" not in text.lower() and "Option<" not in text


def test_what_views_refuse_is_not_between_what_they_have():
    assert "mean" not in vars(ringmain.ContiguousMemmap)
    text = pydoc.plain(pydoc.render_doc(ringmain.ContiguousMemmap))
    own, _, inherited = text.partition("inherited from")
    assert "| mean" not in " ".join(own.split()) and "mean" in inherited


def test_safetensors_explain_their_arguments():
    for value in (ringmain.safetensors.safe_open, ringmain.safetensors.numpy.load_file):
        for name in ("backend", "engine"):
            assert name in inspect.getdoc(value)


def test_an_engine_says_how_it_reads(available):
    text = ringmain.Engine().describe()
    assert "backend auto" in text and "`pread`" in text
    assert "auto" in inspect.getdoc(ringmain.Engine.backend) and "describe" in inspect.getdoc(ringmain.Engine.backend)
