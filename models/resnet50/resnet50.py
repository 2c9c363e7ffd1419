"""ResNet-50: 1,000 classes of ImageNet (He, Zhang, Ren and Sun, 2015)."""

from common import resnet


def files():
    # Of the authors' three models, this one has a bias in conv1.
    body = resnet.body(resnet.lettered(3, 4, 6, 3), bottleneck=True, first_bias=True)
    return resnet.files("resnet50", "ResNet-50", body)
