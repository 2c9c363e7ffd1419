"""Network in Network: 1 x 1 convolutions in place of inner products; ImageNet (Lin, Chen and Yan, 2013)."""

from common import layers as B
from common import recipe

from caffe import layers as L


def mlpconv(n, index, bottom, conv, widths, **more):
    """A convolution and two of 1 x 1, each with its rectifier. conv: its blob, channels, kernel, deviation of
    the weights.

    index: the number of the first of the names cccp; rectifiers have numbers of their own.
    """
    blob, num_output, kernel, std = conv
    tail = "-1024" if index == 7 else ""  # of the layers, not of the blobs
    rectifiers = {1: (0, 1, 2), 3: (3, 5, 6), 5: (7, 8, 9), 7: (10, 11, 12)}[index]
    more = dict(more, top=blob, weight_filler=B.gaussian(std))
    top = B.conv_relu(n, blob + tail, f"relu{rectifiers[0]}", bottom, num_output, kernel, **more)
    for offset, width in enumerate(widths):
        blob = f"cccp{index + offset}"
        # The last scores start small.
        more = dict(top=blob, weight_filler=B.gaussian(0.01 if width == 1000 else 0.05))
        top = B.conv_relu(n, blob + tail, f"relu{rectifiers[offset + 1]}", top, width, 1, **more)
    return top


def body(n, data):
    top = mlpconv(n, 1, data, ("conv1", 96, 11, 0.01), (96, 96), stride=4)
    top = B.max_pool(n, "pool0", top, 3, 2)
    top = mlpconv(n, 3, top, ("conv2", 256, 5, 0.05), (256, 256), pad=2)
    top = B.max_pool(n, "pool2", top, 3, 2)
    top = mlpconv(n, 5, top, ("conv3", 384, 3, 0.01), (384, 384), pad=1)
    top = B.max_pool(n, "pool3", top, 3, 2)
    n["drop"] = L.Dropout(top, dropout_ratio=0.5, in_place=True)
    top = mlpconv(n, 7, n["drop"], ("conv4", 1024, 3, 0.05), (1024, 1000), pad=1)
    return B.ave_pool(n, "pool4", top, 6, 1)


def files():
    return {
        "train_val.prototxt": recipe.classifier("nin_imagenet", body, recipe.imagenet(224, 64, 50)),
        "deploy.prototxt": recipe.deploy("nin_imagenet", body, [10, 3, 224, 224]),
        "solver.prototxt": recipe.solver(
            "nin",
            test_iter=1000,
            test_interval=1000,
            base_lr=0.01,
            lr_policy="step",
            gamma=0.1,
            stepsize=200000,
            display=20,
            max_iter=450000,
            momentum=0.9,
            weight_decay=0.0005,
            snapshot=10000,
        ),
    }
