"""Seven nets that the papers of Caffe's years are about, as lists of operations that every peer can build.

An operation: kind, name of its output, names of its inputs, and what its kind needs. Kinds:
    conv    o (outputs), k (kernel), s (stride), p (pad), g (groups), bias, relu
    bn      relu; BatchNorm and Scale
    pool    t ("max" or "ave"), k, s, p; Caffe's rounding up; k 0 is the whole plane
    lrn     n (window), alpha, beta, within
    ip      o, relu
    relu    alone
    drop    ratio
    add     relu; the sum of its inputs
    concat
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

Shape = tuple[int, ...]


@dataclass
class Op:
    kind: str
    name: str
    inputs: list[str]
    numbers: dict[str, Any] = field(default_factory=dict)

    def __getattr__(self, key: str) -> Any:
        try:
            return self.__dict__["numbers"][key]
        except KeyError:
            raise AttributeError(key) from None


class Builder:
    def __init__(self) -> None:
        self.ops: list[Op] = []

    def _add(self, kind: str, name: str, inputs: list[str], **numbers: Any) -> str:
        self.ops.append(Op(kind, name, inputs, numbers))
        return name

    def conv(
        self,
        name: str,
        x: str,
        o: int,
        k: int,
        s: int = 1,
        p: int = 0,
        g: int = 1,
        bias: bool = True,
        relu: bool = True,
    ) -> str:
        return self._add("conv", name, [x], o=o, k=k, s=s, p=p, g=g, bias=bias, relu=relu)

    def conv_bn(
        self, name: str, x: str, o: int, k: int, s: int = 1, p: int = 0, g: int = 1, relu: bool = True
    ) -> str:
        self.conv(name, x, o, k, s, p, g, bias=False, relu=False)
        return self._add("bn", f"{name}_bn", [name], relu=relu)

    def pool(self, name: str, x: str, t: str, k: int, s: int = 1, p: int = 0) -> str:
        return self._add("pool", name, [x], t=t, k=k, s=s, p=p)

    def lrn(self, name: str, x: str, n: int, alpha: float, beta: float, within: bool = False) -> str:
        return self._add("lrn", name, [x], n=n, alpha=alpha, beta=beta, within=within)

    def ip(self, name: str, x: str, o: int, relu: bool = False) -> str:
        return self._add("ip", name, [x], o=o, relu=relu)

    def relu(self, name: str, x: str) -> str:
        return self._add("relu", name, [x])

    def drop(self, name: str, x: str, ratio: float) -> str:
        return self._add("drop", name, [x], ratio=ratio)

    def add(self, name: str, inputs: list[str]) -> str:
        return self._add("add", name, inputs, relu=True)

    def concat(self, name: str, inputs: list[str]) -> str:
        return self._add("concat", name, inputs)


def lenet() -> list[Op]:
    b = Builder()
    x = b.pool("pool1", b.conv("conv1", "data", 20, 5, relu=False), "max", 2, 2)
    x = b.pool("pool2", b.conv("conv2", x, 50, 5, relu=False), "max", 2, 2)
    b.ip("ip2", b.ip("ip1", x, 500, relu=True), 10)
    return b.ops


def cifar10_full() -> list[Op]:
    b = Builder()
    x = b.relu("relu1", b.pool("pool1", b.conv("conv1", "data", 32, 5, p=2, relu=False), "max", 3, 2))
    x = b.lrn("norm1", x, 3, 5e-5, 0.75, within=True)
    x = b.pool("pool2", b.conv("conv2", x, 32, 5, p=2), "ave", 3, 2)
    x = b.lrn("norm2", x, 3, 5e-5, 0.75, within=True)
    b.ip("ip1", b.pool("pool3", b.conv("conv3", x, 64, 5, p=2), "ave", 3, 2), 10)
    return b.ops


def alexnet() -> list[Op]:
    b = Builder()
    x = b.pool("pool1", b.lrn("norm1", b.conv("conv1", "data", 96, 11, 4), 5, 1e-4, 0.75), "max", 3, 2)
    x = b.pool("pool2", b.lrn("norm2", b.conv("conv2", x, 256, 5, 1, 2, 2), 5, 1e-4, 0.75), "max", 3, 2)
    x = b.conv("conv4", b.conv("conv3", x, 384, 3, 1, 1), 384, 3, 1, 1, 2)
    x = b.pool("pool5", b.conv("conv5", x, 256, 3, 1, 1, 2), "max", 3, 2)
    x = b.drop("drop6", b.ip("fc6", x, 4096, relu=True), 0.5)
    x = b.drop("drop7", b.ip("fc7", x, 4096, relu=True), 0.5)
    b.ip("fc8", x, 1000)
    return b.ops


def googlenet() -> list[Op]:
    """Without the two auxiliary classifiers."""
    b = Builder()

    def inception(name: str, x: str, o1: int, r3: int, o3: int, r5: int, o5: int, op: int) -> str:
        return b.concat(
            name,
            [
                b.conv(f"{name}_1x1", x, o1, 1),
                b.conv(f"{name}_3x3", b.conv(f"{name}_3x3r", x, r3, 1), o3, 3, 1, 1),
                b.conv(f"{name}_5x5", b.conv(f"{name}_5x5r", x, r5, 1), o5, 5, 1, 2),
                b.conv(f"{name}_proj", b.pool(f"{name}_pool", x, "max", 3, 1, 1), op, 1),
            ],
        )

    x = b.lrn("norm1", b.pool("pool1", b.conv("conv1", "data", 64, 7, 2, 3), "max", 3, 2), 5, 1e-4, 0.75)
    x = b.conv("conv2", b.conv("conv2r", x, 64, 1), 192, 3, 1, 1)
    x = b.pool("pool2", b.lrn("norm2", x, 5, 1e-4, 0.75), "max", 3, 2)
    x = inception("i3b", inception("i3a", x, 64, 96, 128, 16, 32, 32), 128, 128, 192, 32, 96, 64)
    x = inception("i4a", b.pool("pool3", x, "max", 3, 2), 192, 96, 208, 16, 48, 64)
    x = inception("i4b", x, 160, 112, 224, 24, 64, 64)
    x = inception("i4c", x, 128, 128, 256, 24, 64, 64)
    x = inception("i4d", x, 112, 144, 288, 32, 64, 64)
    x = inception("i4e", x, 256, 160, 320, 32, 128, 128)
    x = inception("i5a", b.pool("pool4", x, "max", 3, 2), 256, 160, 320, 32, 128, 128)
    x = inception("i5b", x, 384, 192, 384, 48, 128, 128)
    b.ip("fc", b.drop("drop", b.pool("pool5", x, "ave", 0), 0.4), 1000)
    return b.ops


def resnet50() -> list[Op]:
    b = Builder()
    x = b.pool("pool1", b.conv_bn("conv1", "data", 64, 7, 2, 3), "max", 3, 2)
    width = 64
    for stage, blocks in enumerate((3, 4, 6, 3), 2):
        for i in range(blocks):
            name, stride = f"res{stage}{'abcdef'[i]}", 2 if i == 0 and stage > 2 else 1
            shortcut = b.conv_bn(f"{name}_1", x, width * 4, 1, stride, relu=False) if i == 0 else x
            y = b.conv_bn(f"{name}_2a", x, width, 1, stride)
            y = b.conv_bn(f"{name}_2c", b.conv_bn(f"{name}_2b", y, width, 3, 1, 1), width * 4, 1, relu=False)
            x = b.add(name, [shortcut, y])
        width *= 2
    b.ip("fc1000", b.pool("pool5", x, "ave", 0), 1000)
    return b.ops


def mobilenet() -> list[Op]:
    b = Builder()
    x, channels = b.conv_bn("conv1", "data", 32, 3, 2, 1), 32
    plan = [(64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5, (1024, 2), (1024, 1)]
    for i, (outputs, stride) in enumerate(plan, 2):
        x = b.conv_bn(f"conv{i}_dw", x, channels, 3, stride, 1, g=channels)
        x, channels = b.conv_bn(f"conv{i}_sep", x, outputs, 1), outputs
    b.ip("fc", b.pool("pool", x, "ave", 0), 1000)
    return b.ops


def vgg16() -> list[Op]:
    b = Builder()
    x = "data"
    for stage, (width, count) in enumerate(((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)), 1):
        for i in range(count):
            x = b.conv(f"conv{stage}_{i + 1}", x, width, 3, 1, 1)
        x = b.pool(f"pool{stage}", x, "max", 2, 2)
    x = b.drop("drop6", b.ip("fc6", x, 4096, relu=True), 0.5)
    x = b.drop("drop7", b.ip("fc7", x, 4096, relu=True), 0.5)
    b.ip("fc8", x, 1000)
    return b.ops


@dataclass(frozen=True)
class Net:
    """build: the operations. image: shape of one input. batch: that of training."""

    build: Callable[[], list[Op]]
    image: Shape
    batch: int
    classes: int = 1000


NETS = {
    "lenet": Net(lenet, (1, 28, 28), 64, 10),
    "cifar10_full": Net(cifar10_full, (3, 32, 32), 100, 10),
    "alexnet": Net(alexnet, (3, 227, 227), 32),
    "googlenet": Net(googlenet, (3, 224, 224), 16),
    "resnet50": Net(resnet50, (3, 224, 224), 16),
    "mobilenet": Net(mobilenet, (3, 224, 224), 16),
    "vgg16": Net(vgg16, (3, 224, 224), 8),
}


def pooled(size: int, k: int, s: int, p: int) -> int:
    """Caffe's number of windows: rounded up, none beginning beyond the image and the padding before it."""
    count = -(-(size + 2 * p - k) // s) + 1
    return count - 1 if p and (count - 1) * s >= size + p else count


def shapes(ops: list[Op], data: Shape) -> dict[str, Shape]:
    """{output: shape}"""
    found: dict[str, Shape] = {"data": data}
    for op in ops:
        shape = found[op.inputs[0]]
        if op.kind == "conv":
            side = (shape[2] + 2 * op.p - op.k) // op.s + 1
            shape = (shape[0], op.o, side, side)
        elif op.kind == "pool":
            side = pooled(shape[2], op.k, op.s, op.p) if op.k else 1
            shape = (shape[0], shape[1], side, side)
        elif op.kind == "concat":
            shape = (shape[0], sum(found[x][1] for x in op.inputs), *shape[2:])
        elif op.kind == "ip":
            shape = (shape[0], op.o)
        found[op.name] = shape
    return found


def flops(ops: list[Op], data: Shape) -> float:
    """Of one forward pass: two for each multiplication of the convolutions and inner products."""
    found, total = shapes(ops, data), 0.0
    for op in ops:
        source, target = found[op.inputs[0]], found[op.name]
        if op.kind == "conv":
            total += 2.0 * target[0] * target[1] * target[2] * target[3] * source[1] // op.g * op.k**2
        elif op.kind == "ip":
            count = 1
            for n in source[1:]:
                count *= n
            total += 2.0 * target[0] * op.o * count
    return total
