"""SqueezeNet 1.0: AlexNet's accuracy with 1.2 million parameters (Iandola and others, 2016)."""

from common import squeezenet

# A padding of conv10, whose kernel is 1 x 1, adds a frame of constants; the public weights go with it.
BODY = squeezenet.body(first=(96, 7), pools=(4, 8), last_pad=1)


def files():
    return squeezenet.files("squeezenet_v1.0", BODY)
