"""What the oracles say of a case, and whether results agree with it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import ModelProto

from tests.robustness.oracles import Runner, attempt, by_onnxruntime, by_reference
from tests.robustness.random_models import Case, Feeds
from tests.robustness.rules import Unknown, by_rules
from tests.robustness.values import CODES, copied, difference, kind_of

Judge = Callable[[ModelProto, Feeds], list[Any] | None]

judge: Judge | None = by_rules
"""A third oracle, asked where the two differ or a result agrees with neither: the outputs, or None."""


@dataclass(frozen=True)
class Known:
    """What is known to differ, and why that is right."""

    kind: str
    contains: str
    why: str


KNOWN: list[Known] = [
    Known(
        "flatten does not load",
        "Could not find an implementation for If(11)",
        "before opset 13 an If returns tensors only; onnxruntime looks at the first result, which is gone",
    ),
    Known(
        "flatten does not load",
        "Op (QuantizeLinear) [TypeInferenceError] output_dtype",
        "onnxruntime's default optimisation makes a QuantizeLinear of two types; without it the model loads",
    ),
    Known(
        "fails",
        "expected equal shapes of output",
        "ONNX: it is an error if what a Loop scans changes its shape; onnxruntime takes (1,) and () for alike",
    ),
    Known(
        "flatten does not load",
        "is expected to have a single boolean element",
        "an If that fails whenever it runs; once its condition is a constant, onnxruntime does not load it",
    ),
    Known(
        "flatten does not load",
        "axis must be in [-rank, rank-1]",
        "a branch that fails whenever it is taken; once ranks in it are known, onnxruntime does not load it",
    ),
    Known(
        "runs",
        "Invalid num_outputs value of",
        "ONNX gives parts of no elements; neither oracle splits into more parts than there are elements",
    ),
    *(
        Known(
            kind,
            "dim0_offset < dim0_size was false",
            "a Scan of no elements gives nothing, of no length; neither oracle runs one",
        )
        for kind in ("runs", "flatten runs")
    ),
]
"""Findings that are none. Each has a reason."""


def lazily(make: Callable[[], Runner]) -> Callable[[], Runner | None]:
    """A runner that is made when first asked for; None where it cannot be."""
    made: list[Runner | None] = []

    def get() -> Runner | None:
        if not made:
            try:
                made.append(make())
            except Exception:
                made.append(None)
        return made[0]

    return get


class Oracles:
    """Both oracles on all feeds; the second is only asked where the first fails, or somebody disagrees with it."""

    def __init__(self, case: Case) -> None:
        self.case = case
        content = case.model.SerializeToString()
        self._first = lazily(lambda: by_onnxruntime(content))
        self._second = lazily(lambda: by_reference(case.model))
        self._optimised = lazily(lambda: by_onnxruntime(content, optimised=True))
        self.loads = self._first() is not None
        self.notes: list[str] = []
        self.first = [self._twice(k) for k in range(len(case.feeds))]
        self._cache: dict[int, list[Any] | None] = {}

    @property
    def loads_optimised(self) -> bool:
        return self._optimised() is not None

    def _ask(self, get: Callable[[], Runner | None], k: int) -> list[Any] | None:
        return attempt(get(), {n: copied(v) for n, v in self.case.feeds[k].items()})

    def _twice(self, k: int) -> list[Any] | None:
        """onnxruntime's results, unless they are what happened to lie in memory."""
        a, b = (self._ask(self._first, k) for _ in range(2))
        if a is None or b is None or self.compare(k, a, b) is None:
            return a
        self.notes.append("onnxruntime's results change from run to run")
        return None

    def second(self, k: int) -> list[Any] | None:
        if k not in self._cache:
            self._cache[k] = self._ask(self._second, k)
        return self._cache[k]

    def fails(self, k: int) -> bool:
        """Whether no oracle runs on this feed."""
        return self.first[k] is None and self.second(k) is None

    def why(self, k: int) -> str:
        """What the first oracle says where it fails."""
        try:
            runner = self._first()
            if runner is not None:
                runner({n: copied(v) for n, v in self.case.feeds[k].items()})
        except Exception as error:
            return " ".join(str(error).split())
        return "onnxruntime does not load it"

    def runs(self, k: int) -> bool:
        """Whether a result is due: one oracle runs, and the other does not fail on what it can load."""
        return self.first[k] is not None or (not self.loads and self.second(k) is not None)

    def knows(self, k: int) -> bool:
        """Whether there is an oracle for this feed; one that cannot run the model at all is none."""
        return self.loads or not self.fails(k)

    def optimised(self, k: int) -> list[Any] | None:
        """What onnxruntime gives with its usual optimisations, which are not always right."""
        return self._ask(self._optimised, k)

    def against(self, k: int, got: list[Any]) -> str | None:
        """How results differ from what is expected, or None."""
        if wrong := self.mistyped(got):
            return wrong
        first = self.first[k]
        reason = self.compare(k, got, first) if first is not None else None
        if first is not None and reason is None:
            return None
        second = self.second(k)
        if first is None and second is None:
            return None
        other = self.compare(k, got, second) if second is not None else "onnx.reference fails"
        if second is not None and other is None:
            if first is not None:
                self.notes.append(f"as onnx.reference, not as onnxruntime: {self.contested()}: {reason}")
            return None
        if self.judged(k, got, [x for x in (first, second) if x is not None]):
            return None
        if first is None and self.case.contested:
            self.notes.append(f"not as onnx.reference, where onnxruntime fails: {self.contested()}")
            return None
        if first is None:
            return f"onnxruntime fails; onnx.reference: {other}"
        if second is None:
            return f"{reason} (onnx.reference fails)"
        apart = self.compare(k, first, second)
        if apart is None:
            return f"{reason} (both oracles agree)"
        if self.case.contested:
            self.notes.append(f"oracles differ, and ours from both: {self.contested()}: {reason}")
            return None
        return f"{reason} (the oracles differ, too: {apart})"

    def judged(self, k: int, got: list[Any], said: list[list[Any]]) -> bool:
        """Whether every output is what an oracle or the judge says, or is left open by ONNX."""
        third = None if judge is None else judge(self.case.model, self.case.feeds[k])
        if third is None:
            return False
        for j, (x, right) in enumerate(zip(got, third, strict=True)):
            if isinstance(right, Unknown):
                candidates = [others[j] for others in said]
                if not right.open and all(self.compare_one(k, j, x, y) for y in candidates):
                    return False
            elif self.compare_one(k, j, x, right):
                return False
        self.notes.append(f"as the judge: {self.contested()}")
        return True

    def mistyped(self, got: list[Any]) -> str | None:
        """An output that is not of the type that the model declares, whatever an oracle makes of it."""
        for declared, value in zip(self.case.model.graph.output, got, strict=False):
            code = declared.type.tensor_type.elem_type
            if isinstance(value, np.ndarray) and code and CODES[kind_of(value).dtype] != code:
                return f"output {declared.name!r}: type: it is {value.dtype}, which is not what is declared"
        return None

    def compare(self, k: int, got: list[Any], expected: list[Any]) -> str | None:
        if len(got) != len(expected):
            return f"expected {len(expected)} outputs, but got {len(got)}"
        for j, (a, b) in enumerate(zip(got, expected, strict=True)):
            if found := self.compare_one(k, j, a, b):
                return found
        return None

    def compare_one(self, k: int, j: int, got: Any, expected: Any) -> str | None:
        """How output number j differs."""
        found = difference(got, expected, self.case.tolerances[k][j])
        return found and f"output {self.case.model.graph.output[j].name!r}: {found}"

    def contested(self) -> str:
        return ", ".join(sorted(set(self.case.contested))) or "?"
