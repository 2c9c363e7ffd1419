"""NetSpec: a net written down in Python, and turned into a NetParameter.

    from caffe import layers as L, params as P
    n = caffe.NetSpec()
    n.data, n.label = L.Data(source="train_lmdb", backend=P.Data.LMDB, batch_size=64, ntop=2)
    n.conv1 = L.Convolution(n.data, kernel_size=5, num_output=20, weight_filler=dict(type="xavier"))
    n.relu1 = L.ReLU(n.conv1, in_place=True)
    n.loss = L.SoftmaxWithLoss(n.relu1, n.label)
    print(n.to_proto())

Names that are assigned name the tops and their layers. Any word is a layer type; those of the schema have
their parameters completed by editors. Source: pycaffe's net_spec.
"""

from __future__ import annotations

import functools
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from .errors import CaffeError, closest
from .proto import caffe_pb2
from .proto.descriptors import REPEATED, labels

if TYPE_CHECKING:
    from ._layer_functions import LayerFunctions, ParameterEnums

# Types whose parameters stand in messages of other names; "SoftmaxWithLoss" has none of its own.
_MESSAGES_OF = {
    "Deconvolution": ("convolution_param",),
    "EuclideanLoss": ("loss_param",),
    "Im2col": ("convolution_param",),
    "InfogainLoss": ("infogain_loss_param", "loss_param"),
    "LSTM": ("recurrent_param",),
    "MultinomialLogisticLoss": ("loss_param",),
    "RNN": ("recurrent_param",),
    "SigmoidCrossEntropyLoss": ("loss_param",),
    "SoftmaxWithLoss": ("softmax_param", "loss_param"),
}


class NetSpecError(CaffeError, AttributeError):
    """A parameter that the schema does not have, or a top that the NetSpec does not."""


def param_name_dict() -> dict[str, str]:
    """{layer type: name of its parameters, without "_param"}, for types that the schema has messages of:
    {"Convolution": "convolution", ...}."""
    fields = caffe_pb2.LayerParameter.DESCRIPTOR.fields
    pairs = [
        (field.message_type.name.removesuffix("Parameter"), field.name.removesuffix("_param"))
        for field in fields
        if field.message_type is not None and field.name.endswith("_param")
    ]
    return dict(pairs)


_param_names = param_name_dict()


def messages_of(type_name: str) -> tuple[str, ...]:
    """The fields of LayerParameter that hold this type's own parameters; () for types without."""
    if type_name in _MESSAGES_OF:
        return _MESSAGES_OF[type_name]
    return (f"{_param_names[type_name]}_param",) if type_name in _param_names else ()


def to_proto(*tops: Top | Function) -> caffe_pb2.NetParameter:
    """The net of all layers that these tops need. Tops and layers are named by type and number.
    Raises TypeError for what is no top."""
    layers: OrderedDict[Function, caffe_pb2.LayerParameter] = OrderedDict()
    autonames: Counter[str] = Counter()
    for top in tops:
        if not isinstance(top, (Top, Function)):
            cure = "; a NetSpec has a to_proto() of its own" if isinstance(top, NetSpec) else ""
            raise TypeError(f"to_proto takes tops: to_proto(n.loss, ...), not {type(top).__name__}{cure}")
        top._to_proto(layers, {}, autonames)
    return _net(layers)


def _net(layers: Mapping[Function, caffe_pb2.LayerParameter]) -> caffe_pb2.NetParameter:
    net = caffe_pb2.NetParameter()
    net.layer.extend(layers.values())
    return net


def assign_proto(proto: Message, name: str, val: Any) -> None:
    """Set field `name` of a message.

    val: a number or text; a dict for a message; a list, a tuple or an array for a repeated field, of which
    one value will do; the name of an enum's value. Raises NetSpecError for what the message has not, and
    for values that do not fit the field.
    """
    field = proto.DESCRIPTOR.fields_by_name.get(name)
    if field is None:
        known = [f.name for f in proto.DESCRIPTOR.fields]
        raise NetSpecError(
            f"{proto.DESCRIPTOR.name} has no field '{name}'{closest(name, known)} (known: {', '.join(known)})"
        )
    try:
        if _labels(proto.DESCRIPTOR)[name] == REPEATED:
            for value in _as_list(val):
                _append(getattr(proto, name), field, value)
        elif field.message_type is not None:
            _merge(getattr(proto, name), val)
        else:
            setattr(proto, name, _scalar(field, val))
    except (TypeError, ValueError) as error:
        raise NetSpecError(f"{proto.DESCRIPTOR.name}.{name} = {val!r}: {error}") from error


@functools.cache
def _labels(descriptor: Descriptor) -> dict[str, int]:
    return labels(descriptor)


def _as_list(val: Any) -> Sequence[Any]:
    if isinstance(val, np.ndarray):
        return val.ravel().tolist()
    return val if isinstance(val, (list, tuple, range)) else [val]


def _append(container: Any, field: Any, value: Any) -> None:
    if field.message_type is None:
        container.append(_scalar(field, value))
    else:
        _merge(container.add(), value)


def _merge(message: Message, value: Any) -> None:
    """Into the message what a dict, or a message of its kind, says."""
    if isinstance(value, Message):
        message.MergeFrom(value)
    elif isinstance(value, Mapping):
        message.SetInParent()
        for key, item in value.items():
            assign_proto(message, key, item)
    else:
        raise TypeError(f"a dict is wanted, such as dict({message.DESCRIPTOR.fields[0].name}=...)")


def _scalar(field: Any, value: Any) -> Any:
    value = value.item() if isinstance(value, (np.generic, np.ndarray)) else value
    if field.enum_type is not None and isinstance(value, str):
        known = field.enum_type.values_by_name
        if value not in known:
            raise ValueError(
                f"no value of {field.enum_type.name}{closest(value, known)} ({', '.join(known)})"
            )
        return known[value].number
    whole = field.cpp_type not in (FieldDescriptor.CPPTYPE_FLOAT, FieldDescriptor.CPPTYPE_DOUBLE)
    # What 128 / 2 is since Python 3.
    return int(value) if whole and isinstance(value, float) and value.is_integer() else value


class Top:
    """Output n of a layer; bottom of others."""

    def __init__(self, fn: Function, n: int):
        self.fn = fn
        self.n = n

    def to_proto(self) -> caffe_pb2.NetParameter:
        """The net of all layers that this top needs."""
        return to_proto(self)

    def _to_proto(self, layers: OrderedDict, names: dict, autonames: Counter) -> None:
        self.fn._to_proto(layers, names, autonames)

    def __repr__(self) -> str:
        return f"<caffe.net_spec.Top {self.n} of {self.fn.type_name}>"


class Function:
    """A layer: its type, the tops it takes, its parameters, and its own tops.

    Among params, ntop (default 1) is the number of tops, and in_place makes the bottoms the tops. Raises
    TypeError for an input that is no Top.
    """

    def __init__(self, type_name: str, inputs: Sequence[Any], params: Mapping[str, Any]):
        self.type_name = type_name
        self.params = dict(params)
        self.ntop: int = self.params.pop("ntop", 1)
        self.in_place: bool = self.params.pop("in_place", False)
        for index, value in enumerate(inputs):
            if not isinstance(value, Top):
                several = isinstance(value, (tuple, list)) and all(isinstance(x, Top) for x in value)
                cure = "; put * before it" if several else ""
                raise TypeError(
                    f"{type_name} input {index} is not a Top (type is {type(value).__name__}){cure}"
                )
        self.inputs: tuple[Top, ...] = tuple(inputs)
        self.tops = tuple(Top(self, n) for n in range(self.ntop))

    def _get_name(self, names: dict, autonames: Counter) -> str:
        if self not in names:
            names[self] = (
                self._get_top_name(self.tops[0], names, autonames)
                if self.ntop > 0
                else _auto_name(self.type_name, autonames)
            )
        return names[self]

    def _get_top_name(self, top: Top, names: dict, autonames: Counter) -> str:
        if top not in names:
            names[top] = _auto_name(top.fn.type_name, autonames)
        return names[top]

    def _to_proto(self, layers: OrderedDict, names: dict, autonames: Counter) -> None:
        for function in self._in_order(layers):
            layers[function] = function._layer(layers, names, autonames)

    def _in_order(self, done: Mapping[Function, Any]) -> Iterator[Function]:
        """This layer after all that it needs, but for those done already. By a stack of its own: a net may be
        deeper than Python's."""
        seen: set[Function] = {self}
        stack: list[tuple[Function, Iterator[Top]]] = [(self, iter(self.inputs))]
        while stack and self not in done:
            function, inputs = stack[-1]
            top = next(inputs, None)
            if top is None:
                stack.pop()
                yield function
            elif top.fn not in seen and top.fn not in done:
                seen.add(top.fn)
                stack.append((top.fn, iter(top.fn.inputs)))

    def _layer(self, layers: Mapping, names: dict, autonames: Counter) -> caffe_pb2.LayerParameter:
        layer = caffe_pb2.LayerParameter()
        layer.type = self.type_name
        layer.bottom.extend(layers[top.fn].top[top.n] for top in self.inputs)
        if self.in_place:
            layer.top.extend(layer.bottom)
        else:
            layer.top.extend(self._get_top_name(top, names, autonames) for top in self.tops)
        layer.name = self._get_name(names, autonames)
        for key, value in self.params.items():
            self._assign(layer, key, value)
        return layer

    def _assign(self, layer: caffe_pb2.LayerParameter, key: str, value: Any) -> None:
        """Set a parameter of the layer's type or, when that has none of the name, of every layer."""
        general: Mapping[str, Any] = layer.DESCRIPTOR.fields_by_name
        if not key.endswith("param"):
            for message in messages_of(self.type_name):
                if key in general[message].message_type.fields_by_name:
                    assign_proto(getattr(layer, message), key, value)
                    return
        if key not in general:
            own = [f.name for m in messages_of(self.type_name) for f in general[m].message_type.fields]
            known = [*own, *(name for name in general if not name.endswith("_param"))]
            raise NetSpecError(
                f"{self.type_name} has no parameter '{key}'{closest(key, [*known, *general])} "
                f"(its own: {', '.join(own) or 'none'})"
            )
        assign_proto(layer, key, value)

    def to_proto(self) -> caffe_pb2.NetParameter:
        """The net of this layer and all that it needs."""
        return to_proto(self)

    def __repr__(self) -> str:
        return f"<caffe.net_spec.Function {self.type_name}>"


def _auto_name(type_name: str, autonames: Counter) -> str:
    autonames[type_name] += 1
    return f"{type_name}{autonames[type_name]}"


class NetSpec:
    """A set of named tops: `n.conv1 = L.Convolution(n.data, ...)`, or n["conv1"]. A layer without tops
    (ntop=0) is assigned too, so that it is part of the net."""

    tops: OrderedDict[str, Any]

    def __init__(self) -> None:
        super().__setattr__("tops", OrderedDict())

    def __setattr__(self, name: str, value: Any) -> None:
        if not isinstance(value, (Top, Function)):
            cure = " (unpack it: n.a, n.b = ...)" if isinstance(value, tuple) else ""
            raise TypeError(f"n.{name} must be what a layer gives, not {type(value).__name__}{cure}")
        self.tops[name] = value

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "tops":  # asked of an object that is being copied
            raise AttributeError(name)
        if name not in self.tops:
            raise NetSpecError(f"the NetSpec has no top '{name}'{closest(name, self.tops)}")
        return self.tops[name]

    def __setitem__(self, key: str, value: Any) -> None:
        self.__setattr__(key, value)

    def __getitem__(self, item: str) -> Any:
        return self.tops[item]

    def __delattr__(self, name: str) -> None:
        self.__getattr__(name)
        del self.tops[name]

    def __delitem__(self, name: str) -> None:
        del self.tops[name]

    def __contains__(self, name: str) -> bool:
        return name in self.tops

    def to_proto(self) -> caffe_pb2.NetParameter:
        """The net of all tops that were assigned. Raises NetSpecError for parameters that do not exist."""
        names: dict[Any, str] = {value: name for name, value in self.tops.items()}
        layers: OrderedDict[Function, caffe_pb2.LayerParameter] = OrderedDict()
        autonames: Counter[str] = Counter()
        for top in self.tops.values():
            top._to_proto(layers, names, autonames)
        return _net(layers)

    def __repr__(self) -> str:
        return f"<caffe.NetSpec of {len(self.tops)} tops: {', '.join(self.tops)}>"


class Layers:
    """`L`: L.Convolution(bottom, num_output=20, ...) is a layer's top; a tuple of tops for ntop > 1, and the
    layer itself for ntop=0."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("__"):
            raise AttributeError(name)

        def layer_fn(*args: Any, **kwargs: Any) -> Any:
            fn = Function(name, args, kwargs)
            return fn if fn.ntop == 0 else fn.tops[0] if fn.ntop == 1 else fn.tops

        layer_fn.__name__ = layer_fn.__qualname__ = name
        return layer_fn

    def __dir__(self) -> list[str]:
        return sorted({*_param_names, *_MESSAGES_OF} - {"Loss", "Transformation"})


class Parameters:
    """`P`: P.Pooling.MAX is the number of that value in PoolingParameter's enums."""

    def __getattr__(self, name: str) -> Any:
        message = getattr(caffe_pb2, f"{name}Parameter", None)
        if name.startswith("__") or message is None:
            raise NetSpecError(f"the schema has no {name}Parameter{closest(name, dir(self))}")
        return message

    def __dir__(self) -> list[str]:
        return [name.removesuffix("Parameter") for name in dir(caffe_pb2) if name.endswith("Parameter")]


layers: LayerFunctions = Layers()  # type: ignore[assignment]
params: ParameterEnums = Parameters()  # type: ignore[assignment]
