"""Sequential: layers one behind the other, trained on arrays.

    from caffe import model as M
    net = caffe.Sequential([M.Conv(20, 5), M.MaxPool(2), M.Dense(500), M.ReLU(), M.Dense(10)])
    net.compile("softmax_loss", "SGD", metrics=["accuracy"], base_lr=0.01, momentum=0.9)
    history = net.fit(x, y, batch_size=64, epochs=5, validation_data=(x_test, y_test))
    labels = net.predict(x_new).argmax(axis=1)

Below it is a model (`net.model`, see caffe.model), and all that a model can do, this can, too: save plain
files, show its prototxt, give nets for other outputs.
"""

from __future__ import annotations

from .callbacks import Callback as Callback
from .callbacks import Checkpoint as Checkpoint
from .callbacks import EarlyStopping as EarlyStopping
from .callbacks import History as History
from .net import Sequential as Sequential

__all__ = ["Callback", "Checkpoint", "EarlyStopping", "History", "Sequential"]
