"""Models: nets written and trained in Python.

    from caffe import model as M

    with M.Model("lenet") as m:
        x, y = m.data("train_lmdb", batch_size=64, scale=1 / 255)
        h = m.max_pool(m.conv(x, 20, kernel_size=5), 2)
        h = m.relu(m.fc(h, 500))
        loss = m.softmax_loss(m.fc(h, 10, name="score"), y)
    m.minimize(loss, "SGD", base_lr=0.01, momentum=0.9)
    m.fit(iterations=1000, test_every=500)
    m.save("lenet.prototxt", "lenet.caffemodel", "solver.prototxt")

M.conv(x, ...) is m.conv(x, ...) of x's model (of the ambient one for layers without inputs). M.Conv(20, 5)
is a layer yet to be put on something: M.Conv(20, 5)(x), or an element of caffe.Sequential.
docs/from_python.md is the tour.
"""

from __future__ import annotations

from typing import Any

from .block import Block as Block
from .feed import FeedSource as FeedSource
from .graph import LayerCall as LayerCall
from .graph import ModelError as ModelError
from .graph import Top as Top
from .model import Model as Model
from .model import current as current
from .model import reset_default as reset_default
from .modules import register_module as register_module
from .modules import unregister_module as unregister_module
from .parameters import Parameter as Parameter
from .parameters import ParameterInfo as ParameterInfo
from .running import ModelNet as ModelNet
from .running import Output as Output
from .training import History as History
from .training import Minimizer as Minimizer

from_proto = Model.from_proto

__all__ = [
    "Block",
    "FeedSource",
    "History",
    "LayerCall",
    "Minimizer",
    "Model",
    "ModelError",
    "ModelNet",
    "Output",
    "Parameter",
    "ParameterInfo",
    "Top",
    "current",
    "from_proto",
    "register_module",
    "reset_default",
    "unregister_module",
]


def __getattr__(name: str) -> Any:
    """A layer function on the ambient model (conv), or a layer yet to be put on something (Conv)."""
    if name.startswith("_"):
        raise AttributeError(name)
    from .block import ambient, class_like

    try:
        return class_like(name) if name[0].isupper() else ambient(name)
    except ModelError as error:
        raise AttributeError(str(error)) from None


def __dir__() -> list[str]:
    from .modules import function_names

    return sorted({*__all__, *function_names()})
