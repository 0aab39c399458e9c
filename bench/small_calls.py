"""DirectML's larger operators on tensors of 64 to 256 elements, where the call itself is what takes time,
beside NumPy and torch at one thread, whichever is faster: `python -m bench.small_calls`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import anydml as dml
from bench.measure import medians
from bench.peers import installed

Call = Callable[[], object]


def cases(torch: Any) -> Iterator[tuple[str, Call, Call | None, Call]]:
    """What, ours, NumPy's and torch's."""
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal((8, 8)).astype(np.float32) for _ in range(2))
    image = rng.standard_normal((1, 4, 8, 8)).astype(np.float32)
    filters = rng.standard_normal((4, 4, 3, 3)).astype(np.float32)
    rows, places = np.array([[0, 2, 1]], np.int32), np.zeros((8, 8), np.int32)
    tx, ty, timage, tfilters = map(torch.from_numpy, (x, y, image, filters))
    trows, tplaces = torch.tensor([0, 2, 1]), torch.zeros(8, 8, dtype=torch.int64)
    f = torch.nn.functional
    yield "GEMM 8 x 8", lambda: dml.gemm(x, y), lambda: x @ y, lambda: tx @ ty
    yield (
        "CONVOLUTION 4 to 4, 3 x 3",
        lambda: dml.convolution(image, filters),
        None,
        lambda: f.conv2d(timage, tfilters),
    )
    yield "MAX_POOLING 2 x 2", lambda: dml.max_pooling(image, 2, 2), None, lambda: f.max_pool2d(timage, 2)
    yield (
        "AVERAGE_POOLING 2 x 2",
        lambda: dml.average_pooling(image, 2, False, 2),
        None,
        lambda: f.avg_pool2d(timage, 2),
    )
    yield (
        "REDUCE SUM of rows",
        lambda: dml.reduce(x, "SUM", [1]),
        lambda: x.sum(1, keepdims=True),
        lambda: tx.sum(1, keepdim=True),
    )
    yield "ARGMAX of rows", lambda: dml.argmax(x, [1]), lambda: x.argmax(1), lambda: tx.argmax(1)
    yield (
        "ACTIVATION_SOFTMAX",
        lambda: dml.activation_softmax(x),
        None,
        lambda: f.softmax(tx, -1),
    )
    yield (
        "MEAN_VARIANCE_NORMALIZATION1 of rows",
        lambda: dml.mean_variance_normalization1(x, axes=[1], normalize_variance=True),
        None,
        lambda: f.layer_norm(tx, (8,)),
    )
    yield (
        "CUMULATIVE_SUMMATION",
        lambda: dml.cumulative_summation(x, 1, "INCREASING", False),
        lambda: x.cumsum(1),
        lambda: tx.cumsum(1),
    )
    yield "TOP_K, 3 of 8", lambda: dml.top_k(x, 1, 3), None, lambda: torch.topk(tx, 3)
    yield (
        "JOIN",
        lambda: dml.join([x, y], 1),
        lambda: np.concatenate([x, y], 1),
        lambda: torch.cat([tx, ty], 1),
    )
    yield (
        "SPLIT",
        lambda: dml.split(x, [4, 4], 1),
        lambda: [part.copy() for part in np.split(x, 2, 1)],
        lambda: [part.clone() for part in torch.split(tx, 4, 1)],
    )
    yield (
        "SLICE",
        lambda: dml.slice(x, [1, 1], [4, 4], [1, 1]),
        lambda: x[1:5, 1:5].copy(),
        lambda: tx[1:5, 1:5].clone(),
    )
    yield (
        "GATHER 3 rows",
        lambda: dml.gather(x, rows, 0, 1),
        lambda: x.take(rows[0], 0),
        lambda: tx[trows],
    )
    yield (
        "GATHER_ELEMENTS",
        lambda: dml.gather_elements(x, places, 1),
        lambda: np.take_along_axis(x, places, 1),
        lambda: tx.gather(1, tplaces),
    )
    yield (
        "PADDING by 1",
        lambda: dml.padding(x, "CONSTANT", 0.0, 1, 1),
        lambda: np.pad(x, 1),
        lambda: f.pad(tx, (1, 1, 1, 1)),
    )
    sequence = rng.standard_normal((1, 8, 16)).astype(np.float32)
    heads = torch.from_numpy(sequence).view(1, 8, 2, 8).transpose(1, 2)
    yield (
        "MULTIHEAD_ATTENTION, 8 x 8 scores, 2 heads",
        lambda: dml.multihead_attention(sequence, sequence, sequence, scale=0.35, head_count=2),
        None,
        lambda: f.scaled_dot_product_attention(heads, heads, heads),
    )
    ends, classes = np.array([[0, 1]], np.float32), places[:, :1]
    yield (
        "ONE_HOT of 8",
        lambda: dml.one_hot(classes, ends, 8, 1),
        lambda: np.eye(8, dtype=np.float32)[classes[:, 0]],
        lambda: f.one_hot(tplaces[:, 0], 8),
    )
    yield (
        "FILL_VALUE_CONSTANT",
        lambda: dml.fill_value_constant([8, 8], 2.5),
        lambda: np.full((8, 8), 2.5, np.float32),
        lambda: torch.full((8, 8), 2.5),
    )
    yield "TILE 2 x 2", lambda: dml.tile(x, [2, 2]), lambda: np.tile(x, (2, 2)), lambda: tx.repeat(2, 2)
    yield (
        "DEPTH_TO_SPACE",
        lambda: dml.depth_to_space(image, 2),
        None,
        lambda: f.pixel_shuffle(timage, 2),
    )
    yield (
        "RESAMPLE, twice as large",
        lambda: dml.resample(image, interpolation_mode="NEAREST_NEIGHBOR", scales=[1, 1, 2, 2]),
        None,
        lambda: f.interpolate(timage, scale_factor=2),
    )
    yield (
        "CAST to int32",
        lambda: dml.cast(x, output_data_type="INT32"),
        lambda: x.astype(np.int32),
        lambda: tx.to(torch.int32),
    )


def main() -> None:
    torch = installed("torch")
    if torch is None:
        raise SystemExit("expected torch: pip install torch")
    torch.set_num_threads(1)
    table = Table("what", "anydml", "NumPy", "torch", "/ the faster one")
    for what, ours, numpys, torchs in cases(torch):
        made = {"anydml": ours, "torch": torchs} | ({"NumPy": numpys} if numpys else {})
        times = medians(made, 0.2)
        best = min(times[n] for n in times if n != "anydml")
        told = [f"{times[n] * 1e6:.2f} µs" if n in times else "-" for n in ("anydml", "NumPy", "torch")]
        table.add_row(what, *told, f"{times['anydml'] / best:.2f}")
    Console().print(table)


if __name__ == "__main__":
    main()
