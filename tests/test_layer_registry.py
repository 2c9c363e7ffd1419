"""LayerFactory: registering, plugins by entry point, unknown types."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import EntryPoint

import pytest

from caffe import layer_registry
from caffe.errors import LayerError, UnknownLayerError
from caffe.layer import Layer
from caffe.layer_registry import create_layer, layer_type_list, register_layer, unregister_layer
from caffe.layer_types import BUILT_IN
from caffe.proto import caffe_pb2


class Plugin(Layer):
    """Found through an entry point."""


@pytest.fixture
def mine() -> Iterator[type[Layer]]:
    @register_layer("Mine")
    class Mine(Layer):
        pass

    yield Mine
    unregister_layer("Mine")


def param(type: str) -> caffe_pb2.LayerParameter:
    return caffe_pb2.LayerParameter(name="n", type=type)


def test_registered_types_are_made_and_listed(mine: type[Layer]) -> None:
    assert isinstance(create_layer(param("Mine")), mine) and mine.type == "Mine"
    assert "Mine" in layer_type_list() and layer_type_list() == sorted(layer_type_list())


def test_a_type_has_one_owner(mine: type[Layer]) -> None:
    with pytest.raises(LayerError, match="'Mine' is registered already, by .*Mine"):
        register_layer("Mine")(mine)


def test_built_in_types_are_loaded_when_named_and_owned_before() -> None:
    with pytest.raises(LayerError, match="'SPP' is registered already, by caffe.layer_types.spp"):
        register_layer("SPP")(Plugin)
    for type, module in BUILT_IN.items():
        made = create_layer(param(type)) if type != "Python" else None
        assert made is None or type_module(made) == f"caffe.layer_types.{module}"


def type_module(layer: Layer) -> str:
    return type(layer).__module__


def test_packages_provide_types_by_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("Plugged", f"{__name__}:Plugin", layer_registry.ENTRY_POINT_GROUP)
    broken = EntryPoint("Broken", "no_such_module_at_all:Layer", layer_registry.ENTRY_POINT_GROUP)
    monkeypatch.setattr(layer_registry, "_plugins", {"Plugged": point, "Broken": broken})
    try:
        assert "Plugged" in layer_type_list()
        made = create_layer(param("Plugged"))
        assert type(made).__name__ == "Plugin" and made.type == "Plugged"
        with pytest.raises(LayerError, match="no_such_module_at_all"):
            create_layer(param("Broken"))
    finally:
        unregister_layer("Plugged")


def test_unknown_types_name_the_closest_and_the_known(mine: type[Layer]) -> None:
    with pytest.raises(
        UnknownLayerError, match=r"Unknown layer type: mine; did you mean 'Mine'\?.*known types: .*Mine"
    ):
        create_layer(param("mine"))


@pytest.mark.parametrize("type, fork", [("PriorBox", "SSD"), ("ROIPooling", "R-CNN"), ("Interp", "DeepLab")])
def test_types_of_forks_name_the_fork(type: str, fork: str) -> None:
    with pytest.raises(UnknownLayerError, match=fork):
        create_layer(param(type))


def test_no_type_at_all() -> None:
    with pytest.raises(UnknownLayerError, match="none given"):
        create_layer(param(""))
