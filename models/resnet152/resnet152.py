"""ResNet-152: 1,000 classes of ImageNet (He, Zhang, Ren and Sun, 2015)."""

from common import resnet


def files():
    body = resnet.body(resnet.numbered(3, 8, 36, 3), bottleneck=True)
    return resnet.files("resnet152", "ResNet-152", body)
