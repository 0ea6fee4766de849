"""Networks of Qualcomm AI Hub Models, rebuilt from torchvision, timm and transformers by name.

Weights are random: they change no estimate, as long as they are random. Many networks start with
biases of zero and scales of one, and adding nothing or scaling by one takes no time, so such
parameters become random, too. Input sizes are those of AI Hub's code, and so is a network's
preprocessing of its image: AI Hub publishes times of networks that take pixels from 0 to 1; most
normalise each channel, some only scale, some do nothing. The packages are the benchmark's own: `pip
install torchvision timm transformers==4.56.2`. The form of attention depends on the version of
transformers; AI Hub pins this one.

AI Hub's code is quoted from github.com/quic/ai-hub-models at 052dc1f3 (v0.45.0), the nearest to the
published times (v0.47.0) of which these files are stored.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

TRANSFORMERS = "4.56."
"""qai_hub_models/global_requirements.txt: ``transformers~=4.56.2``."""
TOKENS = 384
SMALLEST = "CannedGestureClassifier"
"""Network of almost no work (MediaPipe's, of 21 points of a hand), published for every device."""


def image(size: int, width: int | None = None) -> tuple[Tensor, ...]:
    return (torch.randn(1, 3, size, width or size),)


def _tokens() -> tuple[Tensor, ...]:
    # qai_hub_models/models/_shared/bert_hf/model.py, get_input_spec
    return (
        torch.randint(0, 1000, (1, TOKENS), dtype=torch.int32),
        torch.ones(1, TOKENS, dtype=torch.float32),
    )


class _Text(nn.Module):
    """The likeliest token at one place, of tokens and a mask."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor, mask: Tensor, place: Tensor) -> Tensor:
        # qai_hub_models/models/_shared/bert_hf/model.py, forward
        scores = self.model(tokens, attention_mask=mask).logits
        return scores[torch.arange(1), place.to(torch.int64)].argmax(dim=-1)


class _Replaced(nn.Module):
    """Whether each token was replaced: 0 or 1."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        # qai_hub_models/models/electra_bert_base_discrim_google/model.py, forward
        scores = self.model(tokens, attention_mask=mask).logits
        return torch.round((torch.sign(scores[0]) + 1) / 2)


def _mask_of_ten(mask: Tensor, _shape: tuple[int, int]) -> Tensor:
    """The mask's form that AI Hub gives ELECTRA and MobileBERT."""
    # qai_hub_models/models/_shared/bert_hf/model_patches.py, patch_get_extended_attention_mask
    return ((1.0 - mask.to(torch.float32)) * -10.0)[:, None, None, :]


class _Dense(nn.Module):
    """Ten dense layers, in place of a classifier of gestures, whose weights are not public."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(64, 128)
        self.inner = nn.ModuleList(nn.Linear(128, 128) for _ in range(8))
        self.last = nn.Linear(128, 8)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x).relu()
        for layer in self.inner:
            x = x + layer(x).relu()
        return self.last(x).softmax(-1)


class _First(nn.Module):
    """The first output, or the one called ``out`` or ``logits``, of a model with several."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        result = self.model(x)
        if isinstance(result, Tensor):
            return result
        return result["out"] if "out" in result else result["logits"]


class _Classes(nn.Module):
    """The likeliest class of each pixel."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        # qai_hub_models/models/_shared/deeplab/model.py, forward
        return self.model(x).argmax(1).byte()


class _Average(nn.Module):
    """The average of all of each channel, in rank 3 instead of rank 5."""

    def forward(self, x: Tensor) -> Tensor:
        # qai_hub_models/models/_shared/video_classifier/model.py, SimpleAvgPool
        return x.flatten(2).mean(2)


class _LastChannels(nn.Module):
    """Channels last in the output, too: the compiler's option ``--force_channel_last_output``."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        # qai_hub_models/models/*/model.py, get_channel_last_outputs
        return self.model(x).permute(0, 2, 3, 1)


class _TwoMeans(nn.Module):
    """MobileNetV2 that averages along one axis after the other."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.features, self.classifier = model.features, model.classifier

    def forward(self, x: Tensor) -> Tensor:
        # qai_hub_models/models/mobilenet_v2/model.py loads MobileNetV2.py of
        # github.com/tonylins/pytorch-mobilenet-v2 at 99f21365
        return self.classifier(self.features(x).mean(3).mean(2))


class _OfPixels(nn.Module):
    """A network behind ``(x - mean) / deviation`` by channels, of an image or a video."""

    def __init__(self, model: nn.Module, mean: Sequence[float], deviation: Sequence[float]) -> None:
        super().__init__()
        self.model = model
        self.mean, self.deviation = tuple(mean), tuple(deviation)

    def forward(self, x: Tensor) -> Tensor:
        shape = (1, -1, *(1,) * (x.dim() - 2))
        mean, deviation = (torch.tensor(v).reshape(shape) for v in (self.mean, self.deviation))
        return self.model((x - mean) / deviation)


class _Scaled(nn.Module):
    """A network of numbers from -1 to 1 that takes pixels."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        return self.model(x * 2 - 1)


def _normalised(model: nn.Module) -> nn.Module:
    """Returns a network that takes ImageNet's pixels."""
    return _OfPixels(model, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


def _of_video(model: nn.Module) -> nn.Module:
    """Returns a network that takes the pixels of Kinetics' videos."""
    return _OfPixels(model, (0.43216, 0.394666, 0.37645), (0.22803, 0.22145, 0.216989))


class UNet(nn.Module):
    """The U-Net of Ronneberger et al. (2015) with padding, batch norm and transposed convolutions:
    64 to 1,024 channels."""

    def __init__(self) -> None:
        super().__init__()
        widths = [64, 128, 256, 512, 1024]
        self.first = self._double(3, 64)
        self.down = nn.ModuleList(
            nn.Sequential(nn.MaxPool2d(2), self._double(a, b))
            for a, b in itertools.pairwise(widths)
        )
        back = widths[::-1]
        self.up = nn.ModuleList(nn.ConvTranspose2d(a, b, 2, 2) for a, b in itertools.pairwise(back))
        self.join = nn.ModuleList(self._double(a, b) for a, b in itertools.pairwise(back))
        self.head = nn.Conv2d(64, 2, 1)

    @staticmethod
    def _double(n_in: int, n_out: int) -> nn.Module:
        layers: list[nn.Module] = []
        for a in (n_in, n_out):
            layers += [
                nn.Conv2d(a, n_out, 3, padding=1, bias=False),
                nn.BatchNorm2d(n_out),
                nn.ReLU(),
            ]
        return nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        levels = [self.first(x)]
        for down in self.down:
            levels.append(down(levels[-1]))
        y = levels.pop()
        for up, join in zip(self.up, self.join, strict=True):
            y = join(torch.cat([levels.pop(), up(y)], 1))
        return self.head(y)


def _stand_in_operators() -> None:
    """Defines the operators that a torchvision lacks if it does not fit this torch."""
    library = torch.library.Library("torchvision", "FRAGMENT")
    for operator in ("nms", "qnms"):
        if not hasattr(torch.ops.torchvision, operator):
            library.define(f"{operator}(Tensor dets, Tensor scores, float threshold) -> Tensor")
    _LIBRARIES.append(library)


def vision_network(name: str, **options: object) -> nn.Module:
    _stand_in_operators()
    import torchvision.models as models

    return models.get_model(name, weights=None, **options)


_LIBRARIES: list[torch.library.Library] = []


def timm_network(name: str) -> nn.Module:
    _stand_in_operators()
    import timm

    return timm.create_model(name, pretrained=False)


def _hugging(kind: str, config: str, **options: object) -> nn.Module:
    """Builds a network with the attention that ``from_pretrained`` chooses, which AI Hub calls
    without options: fused (sdpa) in BERT, ALBERT and BEiT, in
    single steps (eager) in others (modeling_*.py of transformers 4.56.2)."""
    _stand_in_operators()
    import transformers

    if not transformers.__version__.startswith(TRANSFORMERS):
        raise ImportError(
            f"transformers {transformers.__version__} writes other graphs: AI Hub's are of"
            " transformers==4.56.2"
        )
    return getattr(transformers, kind)(getattr(transformers, config)(**options))


Built = tuple[nn.Module, tuple[Tensor, ...]]


def _text(
    kind: str, config: str, mask_of: str | None = None, **options: object
) -> Callable[[], Built]:
    """A network of masked tokens; ``mask_of`` names the part whose mask AI Hub changes."""

    def build() -> Built:
        model = _hugging(kind, config, **options)
        if mask_of is not None:
            getattr(model, mask_of).get_extended_attention_mask = _mask_of_ten
        if kind == "ElectraForPreTraining":
            return _Replaced(model), _tokens()
        return _Text(model), (*_tokens(), torch.tensor([5], dtype=torch.int32))

    return build


Wrap = Callable[[nn.Module], nn.Module]


def _image_of(
    name: str, size: int = 224, wrap: Wrap = _normalised, **options: object
) -> Callable[[], Built]:
    return lambda: (wrap(_First(vision_network(name, **options))), image(size))


def _timm_of(name: str, wrap: Wrap = _normalised) -> Callable[[], Built]:
    return lambda: (wrap(timm_network(name)), image(224))


def _video_of(name: str) -> Callable[[], Built]:
    def build() -> Built:
        # qai_hub_models/models/resnet_3d/model.py and resnet_mixed/model.py, from_pretrained
        model = vision_network(name)
        model.avgpool = _Average()
        return _of_video(model), (torch.randn(1, 3, 16, 112, 112),)

    return build


NETWORKS: dict[str, Callable[[], Built]] = {
    "squeezenet1_1": _image_of("squeezenet1_1"),
    "shufflenet_v2": _image_of("shufflenet_v2_x0_5"),
    "mobilenet_v2": lambda: (_normalised(_TwoMeans(vision_network("mobilenet_v2"))), image(224)),
    "mobilenet_v3_small": _image_of("mobilenet_v3_small"),
    "mobilenet_v3_large": _image_of("mobilenet_v3_large"),
    "resnet18": _image_of("resnet18"),
    "googlenet": _image_of("googlenet", wrap=_Scaled, aux_logits=False, init_weights=False),
    "resnet50": _image_of("resnet50"),
    "efficientnet_b0": _image_of("efficientnet_b0"),
    "regnet_y_800mf": _image_of("regnet_y_800mf"),
    "regnet": _image_of("regnet_x_3_2gf"),
    "inception_v3": _image_of("inception_v3", wrap=_Scaled, aux_logits=False, init_weights=False),
    "densenet121": _image_of("densenet121"),
    # AI Hub's (qai_hub_models/models/vit/model.py) is torchvision's. No exporter here writes its
    # packed attention as AI Hub's converter does, so this is timm's form of the same network.
    "vit": _timm_of("vit_base_patch16_224"),
    # AI Hub's (qai_hub_models/models/efficientformer/model.py) is of
    # github.com/snap-research/EfficientFormer; timm's splits query, key and value of its one
    # attention behind the transpose instead of before.
    "efficientformer": _timm_of("efficientformer_l1"),
    "efficientnet_b4": _image_of("efficientnet_b4"),
    "mobile_vit": lambda: (
        _First(_hugging("MobileViTForImageClassification", "MobileViTConfig", num_labels=1000)),
        image(256),
    ),
    "resnet101": _image_of("resnet101"),
    "resnext50": _image_of("resnext50_32x4d"),
    "resnext101": _image_of("resnext101_32x8d"),
    "convnext_tiny": _image_of("convnext_tiny"),
    "convnext_base": _image_of("convnext_base"),
    "resnet_3d": _video_of("r3d_18"),
    "resnet_mixed": _video_of("mc3_18"),
    "beit": lambda: (
        _First(
            _hugging(
                "BeitForImageClassification",
                "BeitConfig",
                use_relative_position_bias=True,
                num_labels=1000,
            )
        ),
        image(224),
    ),
    # The operations of github.com/CVHub520/efficientvit, which AI Hub loads
    # (qai_hub_models/models/efficientvit_l2_cls/model.py).
    "efficientvit_l2_cls": _timm_of("efficientvit_l2"),
    "segformer_base": lambda: (
        _normalised(
            _LastChannels(
                _First(
                    _hugging("SegformerForSemanticSegmentation", "SegformerConfig", num_labels=150)
                )
            )
        ),
        image(512),
    ),
    "electra_bert_base_discrim_google": _text(
        "ElectraForPreTraining",
        "ElectraConfig",
        "electra",
        embedding_size=768,
        hidden_size=768,
        num_attention_heads=12,
        intermediate_size=3072,
    ),
    "albert_base_v2_hf": _text(
        "AlbertForMaskedLM",
        "AlbertConfig",
        hidden_size=768,
        num_attention_heads=12,
        intermediate_size=3072,
    ),
    "bert_base_uncased_hf": _text("BertForMaskedLM", "BertConfig"),
    "mobile_bert_uncased_google": _text("MobileBertForMaskedLM", "MobileBertConfig", "mobilebert"),
    "nasnet": _timm_of("nasnetalarge", _Scaled),
    "fcn_resnet50": _image_of(
        "fcn_resnet50",
        520,
        lambda model: _Classes(_normalised(model)),
        aux_loss=False,
        weights_backbone=None,
    ),
    "unet_segmentation": lambda: (_LastChannels(UNet()), image(640, 1280)),
    SMALLEST: lambda: (_Dense(), (torch.randn(1, 64),)),
}
"""AI Hub's name of a network -> the network in training mode, and example inputs."""


def export(name: str) -> torch.export.ExportedProgram:
    """Returns the network, exported in eval mode with random weights."""
    torch.manual_seed(0)
    model, examples = NETWORKS[name]()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.numel() > 1 and parameter.min() == parameter.max():
                parameter.add_(0.1 * torch.randn_like(parameter))
        return torch.export.export(model.eval(), examples, strict=False)
