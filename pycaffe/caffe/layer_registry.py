"""LayerFactory: which class makes a layer of which type.

Users register their own with `@register_layer("MyType")`; packages announce theirs through the entry
point group `caffe.layers`, name = layer type, value = "module:Class".
"""

from __future__ import annotations

import builtins
from collections.abc import Callable
from importlib import import_module
from typing import Any, TypeVar

from .errors import LayerError, UnknownLayerError, closest
from .layer import Layer
from .proto import caffe_pb2

ENTRY_POINT_GROUP = "caffe.layers"

Creator = Callable[[caffe_pb2.LayerParameter], Layer]
_C = TypeVar("_C", bound=type[Layer])

_creators: dict[str, Creator] = {}
_announced: dict[str, str] = {}  # type -> module that registers it when it is imported
_plugins: dict[str, Any] | None = None

# Types of well-known forks, so that an unknown type can say where its net comes from.
_FORK_TYPES = {
    "the SSD fork (weiliu89)": (
        "Permute PriorBox MultiBoxLoss DetectionOutput DetectionEvaluate Normalize AnnotatedData "
        "SmoothL1Loss VideoData"
    ),
    "Fast/Faster R-CNN's fork": "ROIPooling SmoothL1Loss DropoutMask PSROIPooling BoxAnnotatorOHEM",
    "the DeepLab fork": (
        "Interp ImageSegData SegAccuracy DomainTransform UniqueLabel MatRead MatWrite DenseCRF"
    ),
    "SegNet's fork": "Upsample BN DenseImageData",
    "the PSPNet fork": "BNMomentum SyncBN",
    "NVIDIA's fork (NVCaffe)": "DetectNetTransformation L1Loss Axpy",
    "Intel's fork": "MKLConvolution MKLReLU MKLPooling MKLBatchNorm BoxOutput",
    "MobileNet / ShuffleNet forks": "ConvolutionDepthwise DepthwiseConvolution ShuffleChannel ReLU6 Axpy",
    "OpenPose's or YOLO's forks": "ImResize Nms CPMData Reorg RegionLoss DarknetUpsample",
}


def register_layer(type: str) -> Callable[[_C], _C]:
    """Class decorator: layers of this type are made by the class.

    Raises LayerError when the type has an owner already.
    """

    def decorate(cls: _C) -> _C:
        _refuse_owned(type, cls.__module__)
        cls.type = type
        _creators[type] = cls
        return cls

    return decorate


def _refuse_owned(type: str, module: str) -> None:
    owner: Any = _creators.get(type)
    if owner is not None:
        name = f"{owner.__module__}.{getattr(owner, '__qualname__', owner)}"
    elif _announced.get(type, module) != module:
        name = _announced[type]
    else:
        return
    raise LayerError(f"layer type '{type}' is registered already, by {name}")


def announce(type: str, module: str) -> None:
    """This module registers the type; it is imported when a net first names it."""
    _announced[type] = module


def register_creator(type: str, creator: Creator) -> None:
    """As register_layer, for a function that makes the layer (Python layers)."""
    _refuse_owned(type, creator.__module__)
    _creators[type] = creator


def unregister_layer(type: str) -> None:
    """Forget a type (notebooks that define a layer again, tests)."""
    _creators.pop(type, None)


def _entry_points() -> dict[str, Any]:
    global _plugins
    if _plugins is None:
        from importlib.metadata import entry_points  # costs as much as the rest of the package together

        _plugins = {point.name: point for point in entry_points(group=ENTRY_POINT_GROUP)}
    return _plugins


def layer_type_list() -> list[str]:
    """All types that a prototxt may name, sorted."""
    return sorted({*_creators, *_announced, *_entry_points()})


def create_layer(param: caffe_pb2.LayerParameter) -> Layer:
    """The layer that param describes. Raises UnknownLayerError with the closest known names."""
    try:
        creator = find_creator(param.type)
    except LayerError as error:
        raise LayerError(error.message, layer=param.name, layer_type=param.type) from error.__cause__
    if creator is None:
        raise UnknownLayerError(_unknown(param.type), layer=param.name, layer_type=param.type)
    return creator(param)


def find_creator(type: str) -> Creator | None:
    """What makes layers of this type: a class, or a function; None for an unknown one. Raises LayerError when
    the package that provides the type cannot be imported."""
    creator = _creators.get(type)
    if creator is None and type in _announced:
        import_module(_announced[type])
        creator = _creators[type]
    if creator is None and type in _entry_points():
        point = _entry_points()[type]
        try:
            loaded = point.load()
        except Exception as error:
            raise LayerError(
                f"the package that provides this type ({point.value}) cannot be imported: {error!r}"
            ) from error
        creator = _creators.setdefault(type, loaded)
        if isinstance(loaded, builtins.type) and not loaded.type:
            loaded.type = type
    return creator


def _unknown(type: str) -> str:
    known = layer_type_list()
    text = f"Unknown layer type: {type or '(none given)'}"
    near = closest(type, known)
    forks = [fork for fork, types in _FORK_TYPES.items() if type in types.split()]
    if forks:
        text += (
            f"; it belongs to {' or '.join(forks)}. Provide it as a Python layer or with "
            f"@caffe.register_layer('{type}')"
        )
    elif near:
        text += near
    return f"{text} (known types: {', '.join(known)})"
