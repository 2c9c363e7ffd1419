"""SqueezeNet 1.1: as 1.0, with less than half the arithmetic (Iandola and others, 2016)."""

from common import squeezenet

BODY = squeezenet.body(first=(64, 3), pools=(3, 5), last_pad=0)


def files():
    return squeezenet.files("squeezenet_v1.1", BODY)
