"""Models that PyTorch's exporters make, into tests/data: `python -m tools.export_fixtures`.

Needs torch and onnxscript (`pip install -e '.[bench]' onnxscript`), which the tests do without.
"""

from __future__ import annotations

import io
import warnings
from pathlib import Path

import onnx
import torch
from google.protobuf.message import Message
from torch import Tensor, nn

FOLDER = Path(__file__).parent.parent / "tests" / "data"


class Choice(nn.Module):
    """torch.cond: two small networks, of which the sum of the input chooses one."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, lambda x: self.a(x).relu(), lambda x: self.b(x).tanh(), (x,))


class Nested(nn.Module):
    """torch.cond in torch.cond, with several outputs."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        def inner(x: Tensor) -> tuple[Tensor, Tensor]:
            return torch.cond(x.max() > 2, lambda x: (x * 2, x + 1), lambda x: (x / 2, x - 1), (x,))

        return torch.cond(x.sum() > 0, inner, lambda x: (x.abs(), x.sin()), (x,))


class Squeezed(nn.Module):
    """A scripted squeeze: whether the axis goes depends on its size, so the exporter writes an If."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x.squeeze(1))


def main() -> None:
    warnings.filterwarnings("ignore")
    torch.manual_seed(0)
    FOLDER.mkdir(exist_ok=True)
    x = torch.randn(2, 8)
    for name, module in (("torch_cond", Choice()), ("torch_cond_nested", Nested())):
        program = torch.onnx.export(module, (x,), dynamo=True, input_names=["x"])
        _write(name, program.model_proto)
    file = io.BytesIO()
    torch.onnx.export(
        torch.jit.script(Squeezed()),
        (torch.randn(2, 1, 3),),
        file,
        dynamo=False,
        input_names=["x"],
        output_names=["y"],
        dynamic_axes={"x": {0: "n", 1: "m"}},
        opset_version=17,
    )
    _write("torch_squeeze", onnx.load_model_from_string(file.getvalue()))


def _write(name: str, model: onnx.ModelProto) -> None:
    _forget(model)
    data = model.SerializeToString(deterministic=True)
    (FOLDER / f"{name}.onnx").write_bytes(data)
    print(f"{name}: {len(data):,} bytes")


def _forget(message: Message) -> None:
    """Remove what exporters note about sources and their places, at any depth."""
    for field, content in list(message.ListFields()):
        if field.name in ("metadata_props", "doc_string"):
            message.ClearField(field.name)
        elif field.type == field.TYPE_MESSAGE:
            for inner in content if field.is_repeated else [content]:
                _forget(inner)


if __name__ == "__main__":
    main()
