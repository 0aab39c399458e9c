"""A graph that runs: specialised for what it is fed, planned once for each kind of input.

A program keeps plans by the shapes of its inputs, and by the contents of the small inputs that decide
branches; these guards are compared at each run. The first shapes get a plan of their own; from then on, a
size that was seen to vary is left open, as long as that leaves no more `If`s, and until the same shapes came
many times. Where weights are large, every plan would be a copy of them: all sizes that the file leaves open
are so from the first plan on. The branches of an `If` that stays are programs themselves, so they specialise
by what reaches them.

    x float32[1,8], x float32[1,9], x float32[1,10]  ->  a plan for [1,8], and then one for [1,?] instead
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import numpy as np

from anydml.codegen.compiling import compiling
from anydml.codegen.jit import assembly, is_made, note_made
from anydml.codegen.program.feeds import Fed
from anydml.codegen.program.refusal import NotNative
from anydml.errors import ExecutionFailed, InvalidModel, Problem
from anydml.ir.graph import Constant, Graph, If, Node, OptionalType, TensorType, Type, Value
from anydml.locks import Lock
from anydml.onnx.execute.input_roles import input_roles
from anydml.onnx.execute.lower import gains_by_code, lower
from anydml.onnx.execute.native import (
    QUICK_NODES,
    NativeStep,
    feeds_of,
    may_be_plain,
    native_step,
    runs_before,
)
from anydml.onnx.execute.partition import ProviderRegistry
from anydml.onnx.execute.plan_keys import (
    ANY,
    Key,
    as_sizes,
    can_decide,
    content_key,
    inputs_text,
    join,
    open_sizes,
    opened,
    shape_key,
)
from anydml.onnx.execute.plan_table import MAX_SHAPES, PlanTable
from anydml.onnx.execute.planned import Planned
from anydml.onnx.execute.specialization import count_ifs, selected, specialized, weight_bytes
from anydml.onnx.execute.steps import Plan
from anydml.onnx.partial_eval.evaluator import specialize
from anydml.onnx.providers.provider import RanksDiffer
from anydml.onnx.types import of_content
from anydml.runtime.collector import collector_paused
from anydml.runtime.process import renew_after_fork

if TYPE_CHECKING:
    from anydml.codegen.program.entry import Entry

RUNS_OF_VARIED = 100
"""Until a plan becomes a program where caches grow."""
MAX_GUARDED_CONTENTS = 8
"""Combinations of deciding contents that get plans of their own; later ones are looked at as they come."""
LARGE_WEIGHTS = 1 << 22
"""Bytes of weights from which one plan is better than several: what sizes decide is little beside them."""
_log = logging.getLogger("anydml.session")
_MANY = "inputs of more than %d kinds: plans are made again and again; feed fewer of their ranks and contents"


class Program:
    def __init__(
        self,
        graph: Graph,
        libraries: ProviderRegistry,
        inner: bool = False,
        declared: Sequence[Type | None] = (),
    ) -> None:
        """`inner`: it is a step of another one. `declared`: what the file says of outputs' types."""
        self.graph, self.libraries, self._inner = graph, libraries, inner
        self._declared = {k: t for k, t in enumerate(declared) if isinstance(t, TensorType)}
        self._large, self._roles = weight_bytes(graph) >= LARGE_WEIGHTS, input_roles(graph)
        self._plans = PlanTable(graph, self._roles, not self._large)
        self._plain = not any(isinstance(n, If) or n.bodies for n in graph.nodes)
        self._contents: set[Key] = set()
        self._worse: set[Key] = set()
        """Shapes with open sizes that were found to leave more Ifs."""
        self._branches: WeakSet[Program] = WeakSet()
        self._runs = count(1)
        self._last: Planned | None = None
        self.entry: Entry | None = None
        """The last plan from a dictionary to outputs, at once; or to None, where another plan is needed."""
        self._overflown = False
        """Whether there were more plans than are kept."""
        self.after_fork()
        renew_after_fork(self)

    def after_fork(self) -> None:
        self._lock = Lock()

    def __call__(self, values: Sequence[Any]) -> list[Any]:
        """The outputs for the inputs' contents, for a step of another plan: they may be inputs' memory."""
        return self.plan(values).run(values)

    def run(self, values: Sequence[Any]) -> list[Any]:
        """The outputs, which are the caller's. Where a library gives other ranks than were inferred, all
        that was concluded from them is forgotten, in branches too, and concluded anew without."""
        while True:
            try:
                return self.plan(values).run_owned(values)
            except RanksDiffer as differ:
                self.forget_sizes_of(differ)

    def forget_sizes_of(self, differ: RanksDiffer) -> None:
        """Infer no sizes of these operators any more.

        Raises:
            ExecutionFailed: that was so already.
        """
        operators = {n.op for n in differ.nodes}
        with self._lock:
            if operators <= self.libraries.fast.unbelieved:
                listed = ", ".join(sorted(map(str, operators)))
                raise ExecutionFailed(Problem("", f"expected ranks that follow from the model, of {listed}"))
            self.forget()
            self.libraries.fast.unbelieved |= operators

    def forget(self) -> None:
        """All plans, those of branches too. They refer to this and it to them: else they would stay until
        Python looks for what nobody can reach."""
        with self._lock:
            for branch in list(self._branches):
                branch.forget()
            self._plans.clear()
            self._last = self.entry = None

    def plan(self, values: Sequence[Any]) -> Plan:
        """The plan for inputs like these, which is about to run."""
        key = self._plans.key(values)
        planned = None if key is None else self._plans.met(key)
        if planned is None:
            planned = self._find_plan(values, key)
            if key is not None:
                self._plans.meet(key, planned)
        self._note(planned)
        return planned.of(values)

    def _note(self, planned: Planned) -> None:
        """A plan is about to run. Where plans take turns, none shall spin while another one runs."""
        if planned is not self._last:
            if planned.used and self._last is not None:
                self.libraries.share()
            self._last = planned
            self.entry = planned.plan.entry
        planned.used = next(self._runs)

    def output_types(self, values: Sequence[Any]) -> list[Type | None]:
        """The types of the outputs, for inputs of which only the types are looked at."""
        types = dict(zip(self.graph.inputs, values, strict=True))
        known = {v: t for v, x in types.items() if (t := of_content(x, v.type)) is not None}
        special = specialize(self.graph, known, {}, self.libraries.opsets, self.libraries.fast, deep=True)
        return [v.type for v in special.graph.outputs]

    def met(self, values: Sequence[Any]) -> Plan | None:
        """The plan of arrays of which the like was run before, which is about to run again."""
        plans = self._plans
        key = plans.key(values)
        planned = None if key is None else plans.met(key) or plans.similar(key, values)
        if planned is None:
            return None
        if planned is not self._last:
            self._note(planned)
        return planned.of(values)

    def _find_plan(self, values: Sequence[Any], key: Key | None) -> Planned:
        shapes = tuple([shape_key(v) for v in values])
        contents = tuple([content_key(values[k]) for k in self._plans.deciding])
        with self._lock:
            if contents not in self._contents:
                if len(self._contents) < MAX_GUARDED_CONTENTS:
                    self._contents.add(contents)
                else:
                    contents = ANY
            planned = self._plans.fitting(shapes, contents)
            alone = planned is not None and planned.is_open and self._plans.is_often(key)
            if planned is None or alone:
                planned = self._make_plan(shapes, contents, values, alone)
            if planned.used:
                self._settle(planned)
                if not planned.has_room(values) and self._weights_stay() and planned.make_room(values):
                    self._last = None
            if self._plans.drop_one(planned, self._last) and not self._overflown:
                self._overflown = True
                _log.warning(_MANY, len(self._plans))
            if not self._inner:
                compiling.rest()
            return planned

    @collector_paused()
    def _make_plan(self, shapes: Key, contents: Key, values: Sequence[Any], alone: bool) -> Planned:
        """Make a plan for these inputs; `alone`: for no others."""
        for file in self.libraries.files:
            file.check()
        like = self._plans.like(shapes, contents)
        wanted = [shapes] if alone else self._patterns(shapes, contents, [*like])
        least = min((planned.ifs for planned in like.values()), default=0)
        made: dict[Key, tuple[Graph, set[Value], tuple[str, ...]]] = {}
        for pattern in wanted:
            made[pattern] = self._special(pattern, contents, values)
            if count_ifs(made[pattern][0]) <= least:
                break
        ifs = {pattern: count_ifs(special) for pattern, (special, _, _) in made.items()}
        pattern = min(ifs, key=lambda pattern: ifs[pattern])  # the best of those with the fewest
        self._worse |= {(other, contents) for other, count in ifs.items() if count > ifs[pattern]}
        special, guards, folded = made[pattern]
        if self._roles.growing and any(0 in (sizes or ()) for _, sizes in pattern):
            self.libraries.share()  # what is empty now grows, and another plan takes turns with this one
        planned = self._lower(special, guards, values, (pattern, contents))
        planned.ifs, planned.folded = ifs[pattern], folded
        if open_sizes(pattern):
            planned.larger = partial(self._with_room, special, guards)
            for varied in (*like.values(), planned) if self._roles.growing else ():
                varied.waits = max(varied.waits, RUNS_OF_VARIED)
            self._plans.drop_rare(pattern, contents, planned.ifs)
        self._plans.add(pattern, contents, planned, values)
        return planned

    def _patterns(self, shapes: Key, contents: Key, like: Sequence[Key]) -> list[Key]:
        """What a plan for these shapes may be for, the best of all first."""
        inputs, growing, from_nothing = self.graph.inputs, self._roles.growing, self._roles.from_nothing
        general = opened(shapes, inputs, from_nothing=from_nothing)
        wanted = [shapes] if len(like) < MAX_SHAPES else [general]
        if self._large or growing:
            wanted.insert(0, general)
        if growing and not like:
            wanted.insert(0, opened(shapes, inputs, growing, from_nothing))
        if like:
            joined: Key | None = shapes
            for other in like:
                joined = join(joined, other)
            if joined is not None and (joined, contents) not in self._worse:
                wanted.insert(0, joined)
        return list(dict.fromkeys(wanted))

    def _special(
        self, shapes: Key, contents: Key, values: Sequence[Any]
    ) -> tuple[Graph, set[Value], tuple[str, ...]]:
        """The graph for inputs of these shapes and contents; the inputs that are constants in it; and
        what became of the Ifs that are not."""
        guards = {} if contents is ANY else {self.graph.inputs[k]: values[k] for k in self._plans.deciding}
        known = {v: Constant(np.array(c)) for v, c in guards.items() if can_decide(c)}
        types: dict[Value, Type] = {}
        for value, given, key in zip(self.graph.inputs, values, shapes, strict=True):
            type = of_content(given, value.type)
            if isinstance(type, TensorType) and isinstance(given, np.ndarray) and value not in known:
                type = replace(type, sizes=as_sizes(key[1]))
            if isinstance(type, OptionalType) and given is None:
                type = replace(type, empty=True)
            if type is not None:
                types[value] = type
        opsets, provider = self.libraries.opsets, self.libraries.fast
        deep = any(isinstance(n, If) for n in self.graph.nodes)
        likely = {v: x.shape for v, x in zip(self.graph.inputs, values, strict=True) if hasattr(x, "shape")}
        graph, folded = specialized(self.graph, types, known, opsets, provider, deep, 1, likely)
        self._compare_types(graph.outputs)
        notes = [f"{f.node.label}: {f.because}" for f in folded]
        graph, selections = selected(graph, opsets)
        notes += [f"{d.node.label}: both branches run, and one is selected" for d in selections]
        return graph, set(known), tuple(notes)

    def _compare_types(self, outputs: Sequence[Value]) -> None:
        """Outputs are of the types that the file tells.

        Raises:
            InvalidModel: they are not.
        """
        for k, declared in self._declared.items():
            type = outputs[k].type
            if isinstance(type, TensorType) and type.dtype != declared.dtype:
                name = self.graph.outputs[k].name
                message = (
                    f"expected {declared.dtype}, which the model declares, but its nodes give {type.dtype}"
                )
                raise InvalidModel(Problem(f"output {name!r}", message))

    def _lower(self, special: Graph, guards: set[Value], values: Sequence[Any], key: Key) -> Planned:
        """The plan of the first run; and what makes better ones of code."""
        feeds = self._feeds(guards, values)
        plain = self._plain and self.libraries.native is None and feeds is not None
        if plain and (self.libraries.at_once or not may_be_plain(special, self.libraries.threads)):
            feeds, plain = None, False
        names = [str(n.op) if isinstance(n, Node) else "If" for n in special.walk(bodies=True)]
        made = f"{key} {names}"
        quick = feeds is None or len(names) <= QUICK_NODES
        on_disk = quick and is_made(made)
        if self.libraries.at_once or self.libraries.native or (on_disk and not plain):
            return Planned(self._with_code(special, guards, feeds))

        def kernels() -> Plan | None:
            if not gains_by_code(special, self.libraries):
                return None
            if not plain:  # of what is to be a program, that is to be on disk
                note_made(made)
            return self._by_others(special, guards)

        def program() -> Plan | None:
            found = None if feeds is None else self._native(special, guards, feeds)
            if found is not None:
                note_made(made)
            return found

        plan = self._by_others(special, guards, code=False)
        waits = runs_before(on_disk) if plain else 0
        return Planned(plan, kernels=kernels, program=program if feeds is not None else None, waits=waits)

    def _settle(self, planned: Planned) -> None:
        """Make a better plan of it, if one is due; not of files that were written to since."""
        if not planned.is_due:
            return
        if not self._weights_stay():
            planned.kernels = planned.program = None
        elif planned.settle():
            self._last = None  # its entry is another one

    def _weights_stay(self) -> bool:
        """Whether no file of weights was written to."""
        return all(file.is_unchanged() for file in self.libraries.files)

    def _settle_all(self) -> list[tuple[Key, Key, Planned]]:
        """All plans as they are from now on, with what they are for."""
        with self._lock:
            for planned in self._plans:
                planned.waits = 0
                self._settle(planned)
            return list(self._plans.items())

    def _with_code(self, special: Graph, guards: set[Value], feeds: Sequence[Fed] | None) -> Plan:
        native = None if feeds is None else self._native(special, guards, feeds)
        return native or self._by_others(special, guards)

    def _with_room(self, special: Graph, guards: set[Value], values: Sequence[Any]) -> Plan:
        return self._with_code(special, guards, self._feeds(guards, values))

    def _by_others(self, special: Graph, guards: set[Value], code: bool = True) -> Plan:
        return self._placed(self._without_program(special, code), guards)

    def _without_program(self, special: Graph, code: bool = True) -> Plan:
        told = {v.name: v.sizes for v in self.graph.inputs if v.sizes and not self._inner}
        declared = {v: told[v.name] for v in special.inputs if v.name in told}
        for k, type in self._declared.items():
            if type.sizes and (v := special.outputs[k]).rank is None:
                declared[v] = type.sizes
        with self._lock:
            return lower(special, self.libraries, self._branch, not self._inner, code, declared)

    def _placed(self, plan: Plan, guards: set[Value]) -> Plan:
        """A guarded input is a constant of the plan, but still arrives with every run."""
        slots = iter(plan.inputs)
        ignored = len(plan.template)
        inputs = tuple(ignored if v in guards else next(slots) for v in self.graph.inputs)
        return replace(plan, template=[*plan.template, None], inputs=inputs)

    def _feeds(self, guards: set[Value], values: Sequence[Any]) -> list[Fed] | None:
        """What a program is fed; None where no plan is to be one."""
        if self._inner or self.libraries.native is False:
            return None
        if not self.libraries.fast.on_processor or not all(isinstance(x, np.ndarray) for x in values):
            return None
        return feeds_of(self.graph.inputs, guards, values)

    def _native(self, special: Graph, guards: set[Value], feeds: Sequence[Fed]) -> Plan | None:
        """The plan as one function of machine code, if that is to be had."""
        fed = [k for k, v in enumerate(self.graph.inputs) if v not in guards]
        slots: dict[Value, int] = {}
        for value in (*special.inputs, *special.outputs):
            slots.setdefault(value, len(slots))
        try:
            others = partial(self._without_program, special)
            step = native_step(special, slots.__getitem__, self.libraries, feeds, fed, others, self._plain)
        except NotNative as reason:
            _log.info("no program: %s", reason)
            return None
        except RuntimeError as error:  # LLVM refuses what was written: a mistake here, which nobody asked for
            if self.libraries.native:
                raise
            _log.error("no program, since LLVM refused its code, which is a defect of anydml: %s", error)
            return None
        plan = Plan([None] * len(slots), step.reads, (step,), step.writes, ((),), frozenset())
        return self._placed(plan, guards)

    def _branch(self, graph: Graph) -> Program:
        branch = Program(graph, self.libraries, inner=True)
        self._branches.add(branch)
        return branch

    def explain(self) -> str:
        """The plans made so far: their guards, and what runs where from now on."""
        if not self._plans:
            return "not run yet"
        lines = []
        for shapes, contents, planned in self._settle_all():
            lines.append(f"plan for {inputs_text(self.graph.inputs, shapes, self._plans.deciding, contents)}")
            lines += [f"  folded: {note}" for note in planned.folded]
            lines += ["  " + line for step in planned.plan.describe() for line in step.splitlines()]
            if planned.beyond is not None:
                _, others = planned.beyond
                lines.append("  for longer inputs")
                lines += ["    " + line for step in others.describe() for line in step.splitlines()]
            if not planned.plan.steps:
                lines.append("  nothing to run")
        return "\n".join(lines)

    def emit(self, form: str) -> str:
        """The plans that are one function of machine code, as text: "llvm" or "asm"."""
        steps = [s for *_, p in self._settle_all() for s in p.plan.steps if isinstance(s, NativeStep)]
        return "\n".join(s.program.text if form == "llvm" else assembly(s.program.text) for s in steps)
