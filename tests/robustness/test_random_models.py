"""Random models with fixed seeds: anydml does what the oracles do. `python -m tests.robustness` runs more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import GraphProto

import anydml
from tests.robustness.differential import Checks, check_case
from tests.robustness.oracles import op_types
from tests.robustness.random_models import random_case, random_model
from tests.robustness.running import Summary, alike, keep, kept, outcomes
from tests.robustness.values import Array, difference, same

PARTS = 20
EACH = 20
"""Seeds of a part: together about 35 seconds of two cores."""

CHECKS = Checks()


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.drawn
def test_random_models(part: int) -> None:
    seeds = range(part * EACH, (part + 1) * EACH)
    findings = [f for seed in seeds for f in check_case(random_case(seed), CHECKS).findings]
    assert not findings, "\n".join(map(str, findings))


# ---- the generator -----------------------------------------------------------------------------------


def test_a_seed_always_gives_the_same_model() -> None:
    for seed in (3, 14, 15):
        (model, feeds), (again, others) = random_model(seed), random_model(seed)
        assert model.SerializeToString() == again.SerializeToString()
        assert all(same(a[n], b[n]) for a, b in zip(feeds, others, strict=True) for n in a)


def test_models_are_valid_and_use_many_operators() -> None:
    found: set[str] = set()
    depth = 0
    for seed in range(120):
        case = random_case(seed)
        if case.valid:
            onnx.checker.check_model(case.model)
        found |= set(op_types([case.model.graph]))
        depth = max(depth, _ifs_deep(case.model.graph))
    assert len(found) >= 100
    assert {"If", "Loop", "Scan", "SequenceConstruct"} <= found
    assert depth >= 3


def _ifs_deep(graph: GraphProto) -> int:
    inner = [_ifs_deep(a.g) + (n.op_type == "If") for n in graph.node for a in n.attribute if a.HasField("g")]
    return max(inner, default=0)


# ---- what judges -------------------------------------------------------------------------------------


def floats(*content: float) -> Array:
    return np.array(content, np.float32)


@pytest.mark.parametrize(
    ("got", "expected", "said"),
    [
        (floats(1, 2), floats(1, 2.1), "values"),
        (floats(1, np.nan), floats(1, 2), "values"),
        (floats(np.inf), floats(-np.inf), "values"),
        (floats(1), np.array([1.0]), "dtype"),
        (floats(1), np.float32(1), "shape"),
        (np.array([1]), np.array([2]), "values"),
        (np.array(["a"], object), np.array(["b"], object), "strings"),
        ([np.int64(1)], [], "length"),
        (np.array([1]), [np.array([1])], "kind"),
    ],
)
def test_differences_are_seen(got: Any, expected: Any, said: str) -> None:
    assert (difference(got, expected) or "").startswith(said)


def test_roundings_are_no_differences() -> None:
    assert difference(floats(1, np.nan, np.inf), floats(1 + 1e-6, np.nan, np.inf)) is None
    assert difference(floats(1), floats(1.25), atol=0.5) is None


def test_a_wrong_result_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """An implementation that adds 1 to what it returns is found out, on models whose results are floats."""
    run = anydml.Session.run

    def wrong(session: anydml.Session, names: Any, feeds: Any) -> list[Any]:
        results = run(session, names, feeds)
        return [o + 1 if isinstance(o, np.ndarray) and o.dtype.kind == "f" else o for o in results]

    monkeypatch.setattr(anydml.Session, "run", wrong)
    kinds = [
        f.kind
        for seed in range(6)
        for f in check_case(random_case(seed), Checks(False, False, False)).findings
    ]
    assert "wrong result" in kinds


def test_a_case_is_kept_and_read(tmp_path: Path) -> None:
    case = random_case(5)
    keep(case, [], tmp_path)
    again = kept(tmp_path / "5.onnx")
    assert again.model.SerializeToString() == case.model.SerializeToString()
    assert all(same(a[n], b[n]) for a, b in zip(again.feeds, case.feeds, strict=True) for n in a)


def test_children_report_outcomes() -> None:
    summary = Summary()
    for outcome in outcomes(range(2), 1, Checks(False, False, False)):
        summary.add(outcome)
    assert summary.models == 2


def test_alike_forgets_what_is_by_chance() -> None:
    assert alike("output 'x': expected (2, 3), but got 1e-3 at (0,)") == alike(
        "output 'it\\'s': expected (4, 5), but got 7 at (1,)"
    )
