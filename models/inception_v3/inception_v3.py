"""Inception v3: factorized convolutions; 1,000 classes of ImageNet (Szegedy and others, 2015)."""

from common import layers as B
from common import recipe

from caffe import layers as L


def conv(n, name, bottom, num_output, kernel, relu_name=None, **more):
    """Padded to keep the size, where the stride is 1 and `pad` does not say otherwise."""
    height, width = kernel if isinstance(kernel, tuple) else (kernel, kernel)
    if "pad" not in more and "stride" not in more and (height, width) != (1, 1):
        same = (height // 2, width // 2)
        more |= dict(pad=same[0]) if height == width else dict(pad_h=same[0], pad_w=same[1])
    return B.norm_conv(
        n,
        name,
        bottom,
        num_output,
        kernel,
        bn=f"{name}_bn",
        scale=f"{name}_scale",
        relu_name=relu_name or f"{name}_relu",
        eps=0.001,
        weight_filler=dict(type="xavier"),
        **more,
    )


def chain(n, prefix, bottom, *convolutions, **last):
    """Convolutions one after another: (name, channels, kernel). last: more parameters of the last one."""
    top = bottom
    for index, (name, num_output, kernel) in enumerate(convolutions, 1):
        more = last if index == len(convolutions) else {}
        top = conv(n, f"{prefix}_{name}", top, num_output, kernel, **more)
    return top


def concat(n, name, *branches):
    n[name] = L.Concat(*branches)
    return n[name]


def stem(n, data):
    top = conv(n, "conv1_3x3_s2", data, 32, 3, "conv1_3x3_relu", stride=2)
    top = conv(n, "conv2_3x3_s1", top, 32, 3, "conv2_3x3_relu", pad=0)
    top = conv(n, "conv3_3x3_s1", top, 64, 3, "conv3_3x3_relu")
    top = B.max_pool(n, "pool1_3x3_s2", top, 3, 2)
    top = conv(n, "conv4_3x3_reduce", top, 80, 1, "conv4_relu_3x3_reduce")
    top = conv(n, "conv4_3x3", top, 192, 3, "conv4_relu_3x3", pad=0)
    return B.max_pool(n, "pool2_3x3_s2", top, 3, 2)


def module_a(n, prefix, bottom, projection):
    """35 x 35 pixels."""
    branches = [
        chain(n, prefix, bottom, ("1x1", 64, 1)),
        chain(n, prefix, bottom, ("5x5_reduce", 48, 1), ("5x5", 64, 5)),
        chain(n, prefix, bottom, ("3x3_reduce", 64, 1), ("3x3_1", 96, 3), ("3x3_2", 96, 3)),
    ]
    pooled = B.ave_pool(n, f"{prefix}_pool", bottom, 3, 1, pad=1)
    return concat(n, f"{prefix}_output", *branches, chain(n, prefix, pooled, ("pool_proj", projection, 1)))


def reduction_a(n, bottom):
    """To 17 x 17 pixels."""
    prefix = "reduction_a"
    branches = [
        chain(n, prefix, bottom, ("3x3", 384, 3), stride=2),
        chain(n, prefix, bottom, ("3x3_2_reduce", 64, 1), ("3x3_2", 96, 3), ("3x3_3", 96, 3), stride=2),
    ]
    return concat(n, f"{prefix}_concat", *branches, B.max_pool(n, f"{prefix}_pool", bottom, 3, 2))


def module_b(n, prefix, bottom, width):
    """17 x 17 pixels; kernels of 7 x 7 as 1 x 7 and 7 x 1."""
    flat, tall = (1, 7), (7, 1)
    branches = [
        chain(n, prefix, bottom, ("1x1_2", 192, 1)),
        chain(n, prefix, bottom, ("1x7_reduce", width, 1), ("1x7", width, flat), ("7x1", 192, tall)),
        chain(
            n,
            prefix,
            bottom,
            ("7x1_reduce", width, 1),
            ("7x1_2", width, tall),
            ("1x7_2", width, flat),
            ("7x1_3", width, tall),
            ("1x7_3", 192, flat),
        ),
    ]
    pooled = B.ave_pool(n, f"{prefix}_pool_ave", bottom, 3, 1, pad=1)
    return concat(n, f"{prefix}_concat", *branches, chain(n, prefix, pooled, ("1x1", 192, 1)))


def reduction_b(n, bottom):
    """To 8 x 8 pixels."""
    prefix = "reduction_b"
    branches = [
        chain(n, prefix, bottom, ("3x3_reduce", 192, 1), ("3x3", 320, 3), stride=2),
        chain(
            n,
            prefix,
            bottom,
            ("1x7_reduce", 192, 1),
            ("1x7", 192, (1, 7)),
            ("7x1", 192, (7, 1)),
            ("3x3_2", 192, 3),
            stride=2,
        ),
    ]
    return concat(n, f"{prefix}_concat", *branches, B.max_pool(n, f"{prefix}_pool", bottom, 3, 2))


def module_c(n, prefix, bottom, pool):
    """8 x 8 pixels; two branches end in 1 x 3 beside 3 x 1."""
    flat, tall = (1, 3), (3, 1)
    branches = [chain(n, prefix, bottom, ("1x1_2", 320, 1))]
    top = chain(n, prefix, bottom, ("1x3_reduce", 384, 1))
    branches += [chain(n, prefix, top, ("1x3", 384, flat)), chain(n, prefix, top, ("3x1", 384, tall))]
    top = chain(n, prefix, bottom, ("3x3_reduce", 448, 1), ("3x3", 384, 3))
    branches += [chain(n, prefix, top, ("1x3_2", 384, flat)), chain(n, prefix, top, ("3x1_2", 384, tall))]
    pooled = pool(n, f"{prefix}_pool", bottom, 3, 1, pad=1)
    return concat(n, f"{prefix}_concat", *branches, chain(n, prefix, pooled, ("1x1", 192, 1)))


def body(n, data):
    top = stem(n, data)
    for index, projection in enumerate((32, 64, 64), 1):
        top = module_a(n, f"inception_a{index}", top, projection)
    top = reduction_a(n, top)
    for index, width in enumerate((128, 160, 160, 192), 1):
        top = module_b(n, f"inception_b{index}", top, width)
    top = reduction_b(n, top)
    # The public weights were made with one kind of pooling each.
    top = module_c(n, "inception_c1", top, B.ave_pool)
    top = module_c(n, "inception_c2", top, B.max_pool)
    n["pool_8x8_s1_drop"] = L.Dropout(B.global_pool(n, "pool_8x8_s1", top), dropout_ratio=0.2)
    return B.inner_product(n, "classifier", n["pool_8x8_s1_drop"], 1000)


def files():
    data = recipe.imagenet(299, 32, 25, mean_value=[128, 128, 128], scale=0.0078125)
    return {
        "train_val.prototxt": recipe.classifier("inception_v3", body, data, top_5=True),
        "deploy.prototxt": recipe.deploy("inception_v3", body, [1, 3, 299, 299]),
        # The paper's rule: RMSProp with decay 0.9 and epsilon 1, the rate times 0.94 every two passes.
        "solver.prototxt": recipe.solver(
            "inception_v3",
            test_iter=2000,
            test_interval=5000,
            test_initialization=False,
            type="RMSProp",
            rms_decay=0.9,
            delta=1,
            base_lr=0.045,
            lr_policy="step",
            gamma=0.94,
            stepsize=80000,
            clip_gradients=2,
            display=20,
            max_iter=4000000,
            weight_decay=0.00004,
            snapshot=20000,
        ),
    }
