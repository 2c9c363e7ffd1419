"""FCN-8s: a class of 21 for each pixel, PASCAL VOC (Long, Shelhamer and Darrell, 2015)."""

from common import layers as B
from common import recipe, vgg

from caffe import NetSpec
from caffe import layers as L

CLASSES = 21
IGNORED = dict(ignore_label=255)
MEAN = [104.00699, 116.66877, 122.67892]


def score(n, name, bottom):
    return B.conv(n, name, bottom, CLASSES, 1, weight_filler=B.constant(0))


def enlarged(n, name, bottom, factor):
    """Interpolation by kernels of twice the factor, which are set once (readme.md) and not learned."""
    n[name] = L.Deconvolution(
        bottom,
        convolution_param=dict(num_output=CLASSES, kernel_size=2 * factor, stride=factor, bias_term=False),
        param=[dict(lr_mult=0)],
    )
    return n[name]


def fused(n, stage, top, pooled, offset):
    """The sum of enlarged scores and the scores of a finer stage, cut to their size."""
    finer = score(n, f"score_{stage}", pooled)
    n[f"score_{stage}c"] = L.Crop(finer, top, axis=2, offset=offset)
    n[f"fuse_{stage}"] = L.Eltwise(top, n[f"score_{stage}c"])
    return n[f"fuse_{stage}"]


def body(n, data):
    # The padding of 100 keeps an image of any size from vanishing; the offsets follow from it.
    top = vgg.stages(n, data, (2, 2, 3, 3, 3), first_pad=100)
    for index, kernel in ((6, 7), (7, 1)):
        top = B.conv_relu(n, f"fc{index}", f"relu{index}", top, 4096, kernel)
        n[f"drop{index}"] = L.Dropout(top, dropout_ratio=0.5, in_place=True)
        top = n[f"drop{index}"]
    top = enlarged(n, "upscore2", score(n, "score_fr", top), 2)
    top = fused(n, "pool4", top, n.pool4, offset=5)
    top = enlarged(n, "upscore_pool4", top, 2)
    top = fused(n, "pool3", top, n.pool3, offset=9)
    n["score"] = L.Crop(enlarged(n, "upscore8", top, 8), data, axis=2, offset=31)
    return n["score"]


def train_val():
    def images(part):
        return recipe.lmdb(f"examples/fcn8s/{part}_image_lmdb", 1, mean_value=MEAN)

    def labels(part):
        return recipe.lmdb(f"examples/fcn8s/{part}_label_lmdb", 1)

    n = NetSpec()
    n.data = L.Data(include=recipe.TRAIN, **images("train"))
    n.label = L.Data(include=recipe.TRAIN, **labels("train"))
    scores = body(n, n.data)
    n.accuracy = L.Accuracy(scores, n.label, include=recipe.TEST, accuracy_param=IGNORED)
    n.loss = L.SoftmaxWithLoss(scores, n.label, loss_param=dict(normalize=False, **IGNORED))
    return recipe.with_test_data("voc-fcn8s", n, images("val"), labels("val"))


def files():
    return {
        "train_val.prototxt": train_val(),
        "deploy.prototxt": recipe.deploy("voc-fcn8s", body, [1, 3, 500, 500], output=""),
        # The authors': one image at a time, a loss that is a sum over its pixels.
        "solver.prototxt": recipe.solver(
            "fcn8s",
            test_iter=736,
            test_interval=10000,
            test_initialization=False,
            base_lr=1e-14,
            lr_policy="fixed",
            display=20,
            average_loss=20,
            max_iter=100000,
            momentum=0.99,
            weight_decay=0.0005,
            snapshot=4000,
        ),
    }
