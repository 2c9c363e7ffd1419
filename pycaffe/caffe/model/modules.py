"""Which functions a model has: the daily ones, one for each layer type, and those of registered modules."""

from __future__ import annotations

import functools
import inspect
import re
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from .. import layer_types
from ..errors import closest
from ..layer import Layer
from ..layer_registry import find_creator, layer_type_list
from .graph import LayerCall, ModelError, Top

if TYPE_CHECKING:
    from .model import Model

LayerFunction = Callable[..., Any]

_registered: dict[str, LayerFunction] = {}


def snake_case(name: str) -> str:
    """ "MaxPool" -> "max_pool"; "ReLU" -> "relu", as the layer's file is called."""
    return layer_types.BUILT_IN.get(name) or _words(name)


def _words(name: str) -> str:
    """ "AbsVal" -> "abs_val", whatever its file is called."""
    text = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name)
    return re.sub(r"([A-Z]+)([A-Z][a-z])", r"\1_\2", text).lower()


def daily_functions() -> dict[str, LayerFunction]:
    """The functions of functions.py, learned.py, losses.py and sources.py, by name."""
    found: dict[str, LayerFunction] = {}
    for module in ("functions", "learned", "losses", "sources"):
        path = f"{__package__}.{module}"  # `from . import functions` would ask M.__getattr__
        names = vars(import_module(path))
        found |= {name: f for name, f in names.items() if _is_layer_function(f, path)}
    return found


def _is_layer_function(value: Any, module: str) -> bool:
    if not inspect.isfunction(value) or value.__module__ != module or value.__name__.startswith("_"):
        return False
    return next(iter(inspect.signature(value).parameters), "") == "model"


def type_functions() -> dict[str, str]:
    """{function name: layer type} for every type that a prototxt may name."""
    return {snake_case(type): type for type in layer_type_list()}


def find(name: str) -> LayerFunction:
    """The layer function of that name. Raises ModelError, with the closest known ones."""
    daily = _daily()
    if name in daily:
        return daily[name]
    if name in _registered:
        return _registered[name]
    types = type_functions()
    if name in types:
        return of_type(types[name], name)
    spelled = {_words(type): function for function, type in types.items()}
    if name in spelled:
        return find(spelled[name])
    known = function_names()
    raise ModelError(
        f"there is no layer function '{name}'{closest(name, known)}; M.register_module(module) adds those of "
        "a module of yours"
    )


@functools.cache
def _daily() -> dict[str, LayerFunction]:
    return daily_functions()


def function_names() -> list[str]:
    """The names of all layer functions, sorted."""
    return sorted({*_daily(), *_registered, *type_functions()})


def register_module(module: ModuleType | str) -> list[str]:
    """Make the layer functions of a module methods of every model; returns their names.

    A layer function is a public function that the module itself defines and whose first parameter is
    called `model`; with __all__, those that are named there. `m.my_block(x)` and `M.my_block(x)` work from
    then on, and M.MyBlock(...) in a Sequential. Registering a module again, say after a reload, replaces its
    functions. Raises ModelError when a name is taken.
    """
    if isinstance(module, str):
        module = import_module(module)
    if not isinstance(module, ModuleType):
        raise ModelError(f"register_module takes a module or its name, not {module!r:.60}")
    names = getattr(module, "__all__", None) or [n for n in vars(module) if not n.startswith("_")]
    missing = [n for n in names if not hasattr(module, n)]
    if missing:
        raise ModelError(
            f"register_module: '{module.__name__}' has no '{missing[0]}', which its __all__ names"
        )
    found = {n: f for n in names if _is_layer_function(f := getattr(module, n), module.__name__)}
    if not found:
        raise ModelError(
            f"module '{module.__name__}' has no layer functions: functions whose first parameter is `model`"
        )
    types = type_functions()
    for name in found:
        owner = ""
        if name in _daily():
            owner = f"a layer function of {_daily()[name].__module__}"
        elif name in types:
            owner = f"the function of layer type {types[name]}"
        elif name in _attributes():
            owner = "an attribute of every Model"
        elif (
            name in vars(sys.modules[Top.__module__.rpartition(".")[0]])
            and f"{__package__}.{name}" not in sys.modules
        ):
            owner = f"{__package__}.{name}"
        elif name[0].isupper():
            owner = f"the layers for a Sequential, as M.{name}(...)"
        elif f"{__package__}.{name}" in sys.modules:
            owner = f"the module {__package__}.{name}"
        elif name in _registered and _registered[name].__module__ != module.__name__:
            owner = f"a function of module '{_registered[name].__module__}'"
        if owner:
            raise ModelError(
                f"register_module: '{module.__name__}.{name}' clashes with {owner}: rename it, or leave it "
                "out of __all__"
            )
    _registered.update(found)
    return sorted(found)


@functools.cache
def _attributes() -> frozenset[str]:
    """What every Model has, beside layer functions."""
    from .model import Model

    model = Model(seed=0)
    return frozenset([*vars(model), *(n for c in Model.__mro__ for n in vars(c)), "self", "model"])


def unregister_module(module: ModuleType | str) -> None:
    """Forget the functions of a module (notebooks, tests)."""
    name = module if isinstance(module, str) else module.__name__
    for key in [k for k, f in _registered.items() if f.__module__ == name]:
        del _registered[key]


def of_type(type: str, name: str) -> LayerFunction:
    """The function of a layer type; its docstring is the layer's contract."""

    def function(model: Model, *bottoms: Top, **params: Any) -> Any:
        return add_by_type(model, type, bottoms, **params)

    function.__name__ = function.__qualname__ = name
    creator = find_creator(type)
    function.__doc__ = f"Layer type {type}.\n\n{inspect.getdoc(creator) or ''}"
    return function


def add_by_type(
    model: Model,
    type: str,
    bottoms: Sequence[Any],
    *,
    ntop: int | None = None,
    name: str = "",
    in_place: bool = False,
    phase: str | int | None = None,
    **params: Any,
) -> Any:
    """The layer's top, or a tuple of them; the call itself for a layer without tops."""
    # Refused here, at the line that is wrong, and not when a net is built.
    creator = find_creator(type)
    if creator is None and type != "Python":
        known = layer_type_list()
        raise ModelError(
            f"Unknown layer type: {type}{closest(type, known)} (known types: {', '.join(known)})"
        )
    call: LayerCall = model.add_layer(
        type,
        bottoms,
        params,
        ntop=_count(creator, len(bottoms)) if ntop is None else ntop,
        name=name,
        base="loss" if type.endswith("Loss") else snake_case(type),
        in_place=in_place,
        phase=phase,
    )
    return call.tops[0] if len(call.tops) == 1 else call.tops or call


def _count(creator: Any, bottoms: int) -> int:
    """How many tops the type has at least."""
    if not (isinstance(creator, type) and issubclass(creator, Layer)):
        return 1
    if creator.exact_num_top is not None:
        return creator.exact_num_top
    if creator.equal_num_bottom_top:
        return bottoms
    return creator.min_top if creator.min_top is not None else 1
