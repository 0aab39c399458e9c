"""Ordinary models, without control flow, from PyTorch's exporter: `python -m bench.ordinary FOLDER`.

Needs torch (`pip install -e '.[bench]'`). Weights are random. No size is fixed but those of features and
channels, as in what people export. Each model is a folder with model.onnx and feed_0.npz.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

Shapes = dict[str, dict[int, str]]
Exported = tuple[str, nn.Module, dict[str, Tensor], Shapes]


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(
        self, x: Tensor, mask: Tensor | None, past: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        batch, length, width = x.shape
        q, k, v = (
            part.reshape(batch, length, self.heads, width // self.heads).transpose(1, 2)
            for part in self.qkv(x).chunk(3, -1)
        )
        if past is not None:
            k, v = torch.cat((past[0], k), 2), torch.cat((past[1], v), 2)
        scores = q @ k.transpose(-1, -2) / (width // self.heads) ** 0.5
        if mask is not None:
            scores = scores + mask
        mixed = torch.softmax(scores, -1) @ v
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width)), (k, v)


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention = Attention(width, heads)
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)


class Bert(nn.Module):
    """Four layers of an encoder with the GELU of erf."""

    def __init__(self, width: int = 256, heads: int = 4, layers: int = 4) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(1000, width), nn.Embedding(128, width)
        self.norm = nn.LayerNorm(width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1]))
        x = self.norm(x)
        bias = (1.0 - mask[:, None, None, :].float()) * -10000.0
        for block in self.blocks:
            x = block.first(x + block.attention(x, bias)[0])
            x = block.second(x + block.down(F.gelu(block.up(x))))
        return x


class Gpt(nn.Module):
    """A step of a decoder with its cache, with the GELU of tanh."""

    def __init__(self, width: int = 192, heads: int = 6, layers: int = 4) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(1000, width), nn.Embedding(256, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 1000, bias=False)

    def forward(self, ids: Tensor, *past: Tensor) -> tuple[Tensor, ...]:
        seen = past[0].shape[2]
        x = self.tokens(ids) + self.places(torch.arange(seen, seen + ids.shape[1]))
        present: list[Tensor] = []
        for k, block in enumerate(self.blocks):
            mixed, kept = block.attention(block.first(x), None, (past[2 * k], past[2 * k + 1]))
            x = x + mixed
            x = x + block.down(F.gelu(block.up(block.second(x)), approximate="tanh"))
            present += kept
        return self.head(self.norm(x)), *present


class Tagger(nn.Module):
    """Two layers of an LSTM in both directions over embedded words."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(2000, 64)
        self.lstm = nn.LSTM(64, 64, 2, bidirectional=True, batch_first=True)
        self.tags = nn.Linear(128, 20)

    def forward(self, words: Tensor) -> Tensor:
        return torch.log_softmax(self.tags(self.lstm(self.words(words))[0]), -1)


def convolution(given: int, wanted: int, size: int = 3, stride: int = 1, groups: int = 1) -> nn.Sequential:
    layer = nn.Conv2d(given, wanted, size, stride, size // 2, groups=groups, bias=False)
    return nn.Sequential(layer, nn.BatchNorm2d(wanted))


class MobileNet(nn.Module):
    """Inverted residuals with hard swish and squeeze-and-excitation."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.head = convolution(3, 16, stride=2), nn.Linear(64, 100)
        plan = ((16, 16, 1), (16, 24, 2), (24, 24, 1), (24, 40, 2), (40, 40, 1), (40, 64, 2))
        self.expand = nn.ModuleList(convolution(a, 4 * a, 1) for a, _, _ in plan)
        self.deep = nn.ModuleList(convolution(4 * a, 4 * a, 3, s, 4 * a) for a, _, s in plan)
        self.squeeze = nn.ModuleList(nn.Conv2d(4 * a, a, 1) for a, _, _ in plan)
        self.excite = nn.ModuleList(nn.Conv2d(a, 4 * a, 1) for a, _, _ in plan)
        self.project = nn.ModuleList(convolution(4 * a, b, 1) for a, b, _ in plan)

    def forward(self, x: Tensor) -> Tensor:
        x = F.hardswish(self.stem(x))
        layers = (self.expand, self.deep, self.squeeze, self.excite, self.project)
        for expand, deep, squeeze, excite, project in zip(*layers, strict=True):
            y = F.hardswish(deep(F.hardswish(expand(x))))
            y = y * F.hardsigmoid(excite(F.relu(squeeze(y.mean((2, 3), keepdim=True)))))
            y = project(y)
            x = x + y if x.shape == y.shape else y
        return self.head(x.mean((2, 3)))


class ResNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.head = convolution(3, 32, 7, 2), nn.Linear(128, 100)
        plan = ((32, 32, 1), (32, 64, 2), (64, 128, 2))
        self.first = nn.ModuleList(convolution(a, b, 3, s) for a, b, s in plan)
        self.second = nn.ModuleList(convolution(b, b) for _, b, _ in plan)
        self.short = nn.ModuleList(convolution(a, b, 1, s) for a, b, s in plan)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.stem(x)), 3, 2, 1)
        for first, second, short in zip(self.first, self.second, self.short, strict=True):
            x = F.relu(second(F.relu(first(x))) + short(x))
        return self.head(x.mean((2, 3)))


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        widths = (16, 32, 64)
        self.down = nn.ModuleList(
            nn.Sequential(convolution(a, b), nn.LeakyReLU(0.1), convolution(b, b), nn.LeakyReLU(0.1))
            for a, b in zip((1, *widths), widths, strict=False)
        )
        self.up = nn.ModuleList(
            nn.Sequential(convolution(a + b, b), nn.LeakyReLU(0.1)) for a, b in ((64, 32), (32, 16))
        )
        self.last = nn.Conv2d(16, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        kept = []
        for k, down in enumerate(self.down):
            x = down(x if k == 0 else F.max_pool2d(x, 2))
            kept.append(x)
        for up, skip in zip(self.up, kept[-2::-1], strict=True):
            x = up(torch.cat((F.interpolate(x, scale_factor=2.0, mode="nearest"), skip), 1))
        return torch.sigmoid(self.last(x))


class Head(nn.Module):
    """The head of a detector: SiLU, boxes from a grid, scores."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(convolution(64, 64) for _ in range(3))
        self.boxes, self.classes = nn.Conv2d(64, 4, 1), nn.Conv2d(64, 20, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        for layer in self.layers:
            x = F.silu(layer(x))
        rows, columns = torch.arange(x.shape[2]), torch.arange(x.shape[3])
        grid = torch.stack(torch.meshgrid(columns, rows, indexing="xy"), 0).float()
        raw = self.boxes(x)
        centre, size = (torch.sigmoid(raw[:, :2]) * 2 - 0.5 + grid) * 8, torch.exp(raw[:, 2:]) * 8
        boxes = torch.cat((centre - size / 2, centre + size / 2), 1).flatten(2).transpose(1, 2)
        return boxes, torch.sigmoid(self.classes(x)).flatten(2).transpose(1, 2)


class Signal(nn.Module):
    """What is done to a recording: centred, limited, companded, gated."""

    def forward(self, x: Tensor) -> Tensor:
        x = x - x.mean(-1, keepdim=True)
        x = torch.clamp(x / (x.abs().amax(-1, keepdim=True) + 1e-6), -1.0, 1.0)
        y = torch.sign(x) * torch.log1p(255.0 * x.abs()) / 5.545177444479562
        gate = torch.sigmoid((x.abs() - 0.01) * 400.0)
        return torch.where(gate > 0.5, y * gate, torch.zeros_like(y)) + 0.1 * torch.tanh(3.0 * x)


def models() -> Iterator[Exported]:
    free = {0: "batch", 1: "length"}
    ids = torch.randint(0, 1000, (1, 64))
    yield (
        "bert",
        Bert(),
        {"ids": ids, "mask": torch.ones(1, 64, dtype=torch.int64)},
        {"ids": free, "mask": free},
    )
    past = {f"past{k}": torch.randn(1, 6, 32, 32) for k in range(8)}
    grows = {name: {0: "batch", 2: "seen"} for name in past}
    yield "gpt", Gpt(), {"ids": ids[:, :1], **past}, {"ids": free, **grows}
    yield "tagger", Tagger(), {"words": ids[:, :32]}, {"words": free}
    image = {0: "batch", 2: "height", 3: "width"}
    yield "mobilenet", MobileNet(), {"x": torch.randn(1, 3, 128, 128)}, {"x": image}
    yield "resnet", ResNet(), {"x": torch.randn(1, 3, 128, 128)}, {"x": image}
    yield "unet", UNet(), {"x": torch.randn(1, 1, 96, 96)}, {"x": image}
    yield "head", Head(), {"x": torch.randn(1, 64, 40, 40)}, {"x": image}
    yield "signal", Signal(), {"x": torch.randn(2, 160000)}, {"x": free}


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.ordinary", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    warnings.filterwarnings("ignore")
    torch.manual_seed(0)
    for name, module, feeds, axes in models():
        place = folder / name
        place.mkdir(parents=True, exist_ok=True)
        module.eval()
        with torch.no_grad():
            torch.onnx.export(
                module,
                tuple(feeds.values()),
                str(place / "model.onnx"),
                dynamo=False,
                opset_version=17,
                input_names=list(feeds),
                dynamic_axes=axes,
            )
        np.savez(place / "feed_0.npz", **{n: x.numpy() for n, x in feeds.items()})  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
