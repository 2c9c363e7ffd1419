"""ResNet-101: 1,000 classes of ImageNet (He, Zhang, Ren and Sun, 2015)."""

from common import resnet


def files():
    body = resnet.body(resnet.numbered(3, 4, 23, 3), bottleneck=True)
    return resnet.files("resnet101", "ResNet-101", body)
