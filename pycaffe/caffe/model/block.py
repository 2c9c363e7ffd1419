"""Layer functions without a model at hand: M.conv(x, 20, 5), and M.Conv(20, 5), to be put on something."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any

from . import modules
from .graph import ModelError, Top, caller_place
from .model import Model, current
from .parameters import Parameter


def ambient(name: str) -> Callable[..., Any]:
    """The layer function of that name, on `model=`, else on the model of its inputs, else on current()."""
    function = modules.find(name)

    @functools.wraps(function)
    def on_ambient(*args: Any, model: Model | None = None, **more: Any) -> Any:
        if args and isinstance(args[0], Model):  # as the function itself takes it
            return function(*args, **more)
        return function(_model_for(model, (*args, *more.values())), *args, **more)

    return on_ambient


def _model_for(given: Model | None, inputs: Iterable[Any]) -> Model:
    """The model that was given, else that of the inputs, else the ambient one."""
    if given is not None and not isinstance(given, Model):
        raise ModelError(f"model= takes a caffe.model.Model, not {type(given).__name__}")
    return given or _model_of(inputs) or current()


def _model_of(values: Iterable[Any]) -> Model | None:
    for value in values:
        if isinstance(value, (Top, Parameter)):
            return value.model
        if isinstance(value, (tuple, list)):
            found = _model_of(value)
            if found is not None:
                return found
    return None


class Block:
    """A layer function with its arguments but for the inputs: M.Conv(20, 5) is Block("conv", 20, 5).

    block(x) puts it on a top; every call makes layers, and parameters, of their own.
    """

    def __init__(self, function: str, *args: Any, **more: Any):
        modules.find(function)  # refused here, where it was written
        self.function, self.args, self.more = function, args, more
        self.place = caller_place()  # which errors of its layers name
        self.written = "".join(part.capitalize() for part in function.split("_"))  # how it is shown

    def __call__(self, *tops: Any, model: Model | None = None) -> Any:
        made_at = self.place  # noqa: F841  see caller_place
        if tops and isinstance(tops[0], Model):
            model, *tops = tops  # type: ignore[assignment]
        function, found = modules.find(self.function), _model_for(model, tops)
        try:
            inspect.signature(function).bind(found, *tops, *self.args, **self.more)
        except TypeError as error:
            raise ModelError(f"{self!r} ({self.place}): {error}") from error
        return function(found, *tops, *self.args, **self.more)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Block):
            return NotImplemented
        return (self.function, self.args, self.more) == (other.function, other.args, other.more)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        words = [*map(repr, self.args), *(f"{k}={v!r}" for k, v in self.more.items())]
        return f"M.{self.written}({', '.join(words)})"


def class_like(name: str) -> Callable[..., Block]:
    """Conv, MaxPool, ReLU ...: what makes Blocks of the function conv, max_pool, relu."""
    function = _function_name(name)
    found = modules.find(function)

    @functools.wraps(found)
    def make(*args: Any, **more: Any) -> Block:
        block = Block(function, *args, **more)
        block.written = name
        return block

    make.__name__ = make.__qualname__ = name
    return make


def _function_name(name: str) -> str:
    """By letters alone, so that ReLU, LSTM and MaxPool all find theirs."""
    known = {text.replace("_", ""): text for text in modules.function_names()}
    return known.get(name.lower(), modules.snake_case(name))
