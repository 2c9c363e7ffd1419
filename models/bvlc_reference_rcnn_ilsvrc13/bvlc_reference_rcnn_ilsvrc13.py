"""R-CNN: CaffeNet that scores regions of an image for the 200 classes of ILSVRC 2013 detection."""

from common import alexnet, recipe
from common import layers as B

# 200 classes, and class 0 for the background.
CLASSES = 201


def fine_tuned(n, data):
    """The net that is trained: its softmax needs a class for the background."""
    top = alexnet.features(n, data, pool_first=True, bias=1)
    return alexnet.scores(n, top, "fc8_ilsvrc13", CLASSES, param=B.LEARN_FAST)


def detector(n, data):
    """The net that is used: the last layer holds one support vector machine for each class."""
    return alexnet.scores(n, alexnet.features(n, data, pool_first=True, bias=1), "fc-rcnn", 200)


def windows(part, mirror):
    """A window file of R-CNN: regions with their overlaps. A quarter of a batch are objects."""
    return dict(
        transform_param=dict(mirror=mirror, crop_size=227, mean_value=recipe.IMAGENET_MEAN),
        window_data_param=dict(
            source=f"examples/rcnn/window_file_ilsvrc13_{part}.txt",
            batch_size=128,
            fg_threshold=0.5,
            bg_threshold=0.5,
            fg_fraction=0.25,
            context_pad=16,
            crop_mode="warp",
        ),
    )


def files():
    return {
        "train_val.prototxt": recipe.classifier(
            "R-CNN-ilsvrc13",
            fine_tuned,
            (windows("train", True), windows("val", False)),
            data_type="WindowData",
        ),
        "deploy.prototxt": recipe.deploy("R-CNN-ilsvrc13", detector, [10, 3, 227, 227], output=""),
        "solver.prototxt": recipe.solver(
            "bvlc_reference_rcnn_ilsvrc13",
            test_iter=100,
            test_interval=1000,
            base_lr=0.001,
            lr_policy="step",
            gamma=0.1,
            stepsize=20000,
            display=20,
            max_iter=100000,
            momentum=0.9,
            weight_decay=0.0005,
            snapshot=10000,
        ),
    }
