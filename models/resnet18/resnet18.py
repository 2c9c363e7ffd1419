"""ResNet-18: 1,000 classes of ImageNet (He, Zhang, Ren and Sun, 2015)."""

from common import resnet


def files():
    return resnet.files("resnet18", "ResNet-18", resnet.body(resnet.lettered(2, 2, 2, 2), bottleneck=False))
