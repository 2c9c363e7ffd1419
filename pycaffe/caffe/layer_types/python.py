"""Python: a layer that the user wrote, found by module and class name.

    layer {
      type: "Python" bottom: "x" top: "y"
      python_param { module: "my_layers" layer: "Scale2" param_str: "…" }
    }

    class Scale2(caffe.Layer):
        def setup(self, bottom, top): ...
        def reshape(self, bottom, top): top[0].reshape(*bottom[0].data.shape)
        def forward(self, bottom, top): top[0].data[...] = 2 * bottom[0].data
        def backward(self, top, propagate_down, bottom):
            if propagate_down[0]: bottom[0].diff[...] = 2 * top[0].diff

module: as in `import module`, found on sys.path (PYTHONPATH). layer: a class in it, derived from
caffe.Layer; it is constructed with the LayerParameter. param_str (default ""): any text, given as
self.param_str; self.phase is caffe.TRAIN or caffe.TEST. share_in_parallel (default false): one instance
for all ranks, which is refused where there are several: each rank is a process of its own.

setup may add parameters with self.blobs.add_blob(shape…); reshape is called before every forward.
What the user's code raises passes unchanged, with a note that names the layer. Raises LayerError for a
module or class that is not there.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from .. import context
from ..blob import Blob
from ..errors import LayerError, closest
from ..layer import Layer
from ..layer_registry import register_creator
from ..proto import caffe_pb2


def create(param: caffe_pb2.LayerParameter) -> Layer:
    """The user's layer that python_param names."""
    fields = param.python_param
    where = f"python_param {{ module: {fields.module!r} layer: {fields.layer!r} }}"

    def error(message: str) -> LayerError:
        return LayerError(message, layer=param.name, layer_type=param.type)

    if not context.python_layers_allowed():
        raise error(
            f"Python layers are refused here, since they run code of the module {fields.module!r}; leave out "
            "--no-python-layers if you trust the file"
        )
    for field in ("module", "layer"):
        if not getattr(fields, field):
            raise error(f"python_param.{field} must be given: {where}")
    if fields.share_in_parallel and context.solver_count() > 1:
        raise error(
            f"share_in_parallel: true cannot be honoured among {context.solver_count()} ranks: each is a "
            "process of its own. Leave it out, and let every rank have its own instance"
        )
    return construct(_find_class(fields, error), param)


def construct(cls: type[Layer], param: caffe_pb2.LayerParameter) -> Layer:
    """An instance of a user's class, as a net makes it."""
    noting = _noting(cls)
    layer = object.__new__(noting)
    # Before the user's __init__, so that it may read them, and need not call the base's.
    Layer.__init__(layer, param)
    # The second name is that of Caffe before 2015, which scripts of its forks still use.
    layer.param_str = layer.param_str_ = param.python_param.param_str  # type: ignore[attr-defined]
    with _named(param.name, cls, "__init__"):
        layer.__init__(param)  # type: ignore[misc]
    return layer


def _find_class(fields: caffe_pb2.PythonParameter, error: Callable[[str], LayerError]) -> type[Layer]:
    module_name = fields.module
    if "/" in module_name or "\\" in module_name or module_name.endswith(".py"):
        folder, _, file = module_name.replace("\\", "/").rpartition("/")
        raise error(
            f"python_param.module must be a module's name, not the path {module_name!r}: put the folder "
            f"{folder or '.'!r} on PYTHONPATH (or sys.path) and write module: {file.removesuffix('.py')!r}"
        )
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as fault:
        if fault.name is None or not f"{module_name}.".startswith(f"{fault.name}."):
            fault.add_note(f"while importing python_param.module {module_name!r}")
            raise  # the module is there; something that it imports is not
        names = (info.name for info in pkgutil.iter_modules())
        raise error(
            f"python_param.module: No module named {fault.name!r}; the folder that holds it must be on "
            f"PYTHONPATH or sys.path{closest(module_name, names)}"
        ) from None
    except Exception as fault:
        fault.add_note(f"while importing python_param.module {module_name!r}")
        raise
    cls = getattr(module, fields.layer, None)
    layers = [
        n for n, x in vars(module).items() if isinstance(x, type) and issubclass(x, Layer) and x is not Layer
    ]
    if cls is None:
        raise error(
            f"module {module_name!r} ({getattr(module, '__file__', 'no file')}) has no class {fields.layer!r}"
            f"; its layers: {', '.join(layers) or 'none'}{closest(fields.layer, layers)}"
        )
    if not (isinstance(cls, type) and issubclass(cls, Layer)):
        raise error(f"{module_name}.{fields.layer} must be a class derived from caffe.Layer, not {cls!r}")
    return cls


@contextmanager
def _named(name: str, cls: type, method: str) -> Iterator[None]:
    """The user's exception, with a note that tells in which layer of the net it happened."""
    try:
        yield
    except Exception as fault:
        fault.add_note(f"in layer '{name}' (Python, {cls.__module__}.{cls.__qualname__}.{method})")
        raise


@functools.cache
def _noting(cls: type[Layer]) -> type[Layer]:
    """cls, with notes on its exceptions. A subclass, so that the user's own class stays untouched."""
    if "user_class" in vars(cls):
        return cls

    class Noting(cls):  # type: ignore[misc, valid-type]
        user_class = cls
        type = cls.type or "Python"
        is_python = True
        reshape_every_pass = True

        def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
            with _named(self.name, cls, "setup"):
                super().setup(bottom, top)

        def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
            with _named(self.name, cls, "reshape"):
                super().reshape(bottom, top)

        def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
            with _named(self.name, cls, "forward"):
                super().forward(bottom, top)

        def backward(
            self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]
        ) -> None:
            with _named(self.name, cls, "backward"):
                super().backward(top, propagate_down, bottom)

    Noting.__name__, Noting.__qualname__ = cls.__name__, cls.__qualname__
    Noting.__module__, Noting.__doc__ = cls.__module__, cls.__doc__
    return Noting


register_creator("Python", create)
