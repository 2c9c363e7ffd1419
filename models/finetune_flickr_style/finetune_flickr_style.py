"""CaffeNet fine-tuned: the style of a photograph, one of 20."""

from common import alexnet, recipe
from common import layers as B


def body(n, data):
    top = alexnet.features(n, data, pool_first=True, bias=1)
    return alexnet.scores(n, top, "fc8_flickr", 20, param=B.LEARN_FAST)


def images(part, mirror):
    """A list of images and their styles."""
    return dict(
        transform_param=dict(mirror=mirror, crop_size=227, mean_value=recipe.IMAGENET_MEAN),
        image_data_param=dict(
            source=f"data/flickr_style/{part}.txt", batch_size=50, new_height=256, new_width=256
        ),
    )


def files():
    return {
        "train_val.prototxt": recipe.classifier(
            "FlickrStyleCaffeNet", body, (images("train", True), images("test", False)), data_type="ImageData"
        ),
        "deploy.prototxt": recipe.deploy("FlickrStyleCaffeNet", body, [10, 3, 227, 227]),
        "solver.prototxt": recipe.solver(
            "finetune_flickr_style",
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
