"""Where public weights of the reference models are to be had: one table."""

from __future__ import annotations

from typing import NamedTuple

from caffe.download import RemoteFile


class PublicWeights(NamedTuple):
    """file: its name and the checksums that its publisher states; size 0, for sizes are not stated.
    page: who published it. mirrors: URLs of folders that hold it, best first; none, where only a browser
    gets it. Without a checksum, only mirrors over HTTPS."""

    file: RemoteFile
    page: str
    mirrors: tuple[str, ...] = ()


def _file(name: str, sha1: str = "", sha256: str = "", query: str = "") -> RemoteFile:
    return RemoteFile(name, 0, sha1=sha1, sha256=sha256, query=query)


def _bvlc(name: str, sha1: str) -> PublicWeights:
    """SHA-1: as the readme of the model in BVLC's repository states it."""
    host = "dl.caffe.berkeleyvision.org/"
    page = f"https://github.com/BVLC/caffe/tree/master/models/{name}"
    return PublicWeights(_file(f"{name}.caffemodel", sha1), page, (f"https://{host}", f"http://{host}"))


def _vgg(layers: int) -> PublicWeights:
    page = "https://www.robots.ox.ac.uk/~vgg/research/very_deep/"
    mirror = "https://www.robots.ox.ac.uk/~vgg/software/very_deep/caffe/"
    return PublicWeights(_file(f"VGG_ILSVRC_{layers}_layers.caffemodel"), page, (mirror,))


def _squeezenet(version: str) -> PublicWeights:
    page = "https://github.com/forresti/SqueezeNet"
    mirror = f"{page}/raw/master/SqueezeNet_v{version}/"
    return PublicWeights(_file(f"squeezenet_v{version}.caffemodel"), page, (mirror,))


def _resnet(layers: int) -> PublicWeights:
    page = "https://github.com/KaimingHe/deep-residual-networks#models"
    return PublicWeights(_file(f"ResNet-{layers}-model.caffemodel"), page)


def _mobilenet(name: str, sha256: str) -> PublicWeights:
    """SHA-256: the eight digits of it that the readme states."""
    page = "https://github.com/shicai/MobileNet-Caffe"
    return PublicWeights(_file(f"{name}.caffemodel", sha256=sha256), page, (f"{page}/raw/master/",))


WEIGHTS = {
    "bvlc_alexnet": _bvlc("bvlc_alexnet", "9116a64c0fbe4459d18f4bb6b56d647b63920377"),
    "bvlc_googlenet": _bvlc("bvlc_googlenet", "405fc5acd08a3bb12de8ee5e23a96bec22f08204"),
    "bvlc_reference_caffenet": _bvlc("bvlc_reference_caffenet", "4c8d77deb20ea792f84eb5e6d0a11ca0a8660a46"),
    "bvlc_reference_rcnn_ilsvrc13": _bvlc(
        "bvlc_reference_rcnn_ilsvrc13", "bdd8abb885819cba5e2fe1eb36235f2319477e64"
    ),
    "finetune_flickr_style": _bvlc("finetune_flickr_style", "b61b5cef7d771b53b0c488e78d35ccadc073e9cf"),
    "vgg16": _vgg(16),
    "vgg19": _vgg(19),
    # Its page stated a SHA-1 that the same author also states for another net (models/nin/readme.md).
    "nin": PublicWeights(
        _file("nin_imagenet.caffemodel", query="?dl=1"),
        "https://gist.github.com/mavenlin/d802a5849de39225bcc6",
        ("https://www.dropbox.com/s/0cidxafrb2wuwxw/",),
    ),
    "squeezenet_v1.0": _squeezenet("1.0"),
    "squeezenet_v1.1": _squeezenet("1.1"),
    "resnet18": PublicWeights(
        _file("resnet-18.caffemodel"), "https://github.com/HolmesShuan/ResNet-18-Caffemodel-on-ImageNet"
    ),
    "resnet50": _resnet(50),
    "resnet101": _resnet(101),
    "resnet152": _resnet(152),
    "mobilenet_v1": _mobilenet("mobilenet", "8d6edcd3"),
    "mobilenet_v2": _mobilenet("mobilenet_v2", "a3124ce7"),
    "densenet121": PublicWeights(
        _file("DenseNet_121.caffemodel"), "https://github.com/shicai/DenseNet-Caffe"
    ),
    "inception_v3": PublicWeights(_file("inception_v3.caffemodel"), "https://github.com/soeaver/caffe-model"),
    "fcn8s": PublicWeights(
        _file("fcn8s-heavy-pascal.caffemodel"),
        "https://github.com/shelhamer/fcn.berkeleyvision.org",
        ("https://dl.caffe.berkeleyvision.org/",),
    ),
}
