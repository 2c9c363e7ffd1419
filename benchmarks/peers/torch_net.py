"""A spec run by PyTorch, eagerly, in the contiguous or the channels-last layout."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .caffe_net import inputs, parameters
from .specs import NETS


class TorchNet:
    def __init__(self, name: str, channels_last: bool, train: bool):
        import torch

        self.ops, self.train = NETS[name].build(), train
        self.format = torch.channels_last if channels_last else torch.contiguous_format
        self.params: dict[str, Any] = {}
        for key, value in parameters(name).items():
            tensor = torch.from_numpy(value)
            if tensor.dim() == 4:
                tensor = tensor.contiguous(memory_format=self.format)
            self.params[key] = tensor.requires_grad_(train)
        self.running = {
            op.name: (
                torch.zeros_like(self.params[f"{op.name}.scale"]),
                torch.ones_like(self.params[f"{op.name}.scale"]),
            )
            for op in self.ops
            if op.kind == "bn"
        }

    def __call__(self, x: Any) -> Any:
        import torch
        import torch.nn.functional as F

        p, values = self.params, {"data": x}
        for op in self.ops:
            v = values[op.inputs[0]]
            if op.kind == "conv":
                y = F.conv2d(v, p[f"{op.name}.w"], p.get(f"{op.name}.b"), op.s, op.p, groups=op.g)
            elif op.kind == "bn":
                mean, variance = self.running[op.name]
                y = F.batch_norm(
                    v,
                    mean.detach(),
                    variance.detach(),
                    p[f"{op.name}.scale"],
                    p[f"{op.name}.shift"],
                    self.train,
                    0.001,
                    1e-5,
                )
            elif op.kind == "pool":
                k = op.k or v.shape[2]
                if op.t == "max":
                    y = F.max_pool2d(v, k, op.s, op.p, ceil_mode=True)
                else:
                    y = F.avg_pool2d(v, k, op.s, op.p, ceil_mode=True, count_include_pad=False)
            elif op.kind == "lrn" and op.within:
                energy = F.avg_pool2d(v * v, op.n, 1, op.n // 2, count_include_pad=True)
                y = v * (1 + op.alpha * energy) ** -op.beta
            elif op.kind == "lrn":
                y = F.local_response_norm(v, op.n, op.alpha, op.beta, 1.0)
            elif op.kind == "ip":
                y = F.linear(v.flatten(1), p[f"{op.name}.w"], p[f"{op.name}.b"])
            elif op.kind == "relu":
                y = F.relu(v, inplace=True)
            elif op.kind == "drop":
                y = F.dropout(v, op.ratio, self.train)
            elif op.kind == "add":
                y = v + values[op.inputs[1]]
            else:
                y = torch.cat([values[i] for i in op.inputs], 1)
            values[op.name] = F.relu(y, inplace=True) if op.numbers.get("relu") else y
        return y


def _images(name: str, batch: int, net: TorchNet) -> tuple[Any, Any]:
    import torch

    images, labels = inputs(name, batch)
    x = torch.from_numpy(images)
    return x.contiguous(memory_format=net.format), torch.from_numpy(labels).long()


def inference(name: str, batch: int, channels_last: bool) -> Callable[[], np.ndarray]:
    import torch

    net = TorchNet(name, channels_last, train=False)
    x, _ = _images(name, batch, net)

    def run() -> np.ndarray:
        with torch.inference_mode():
            return net(x).softmax(1).numpy()

    return run


def training(name: str, batch: int, channels_last: bool) -> Callable[[], float]:
    import torch

    net = TorchNet(name, channels_last, train=True)
    x, labels = _images(name, batch, net)
    optimizer = torch.optim.SGD(net.params.values(), lr=1e-4, momentum=0.9, weight_decay=5e-4)

    def run() -> float:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(net(x), labels)
        loss.backward()
        optimizer.step()
        return loss.item()

    return run
