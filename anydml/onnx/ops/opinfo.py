"""What is known of an ONNX operator, in one place.

    OpInfo("Add", fold=lambda node, a, b: a + b)

`fold` is the operator in NumPy: what is known is computed with it, before a model runs, and nodes that no
library runs rightly run by it. It is right for whatever it answers, or it says `NotFoldable`. The other facts
are: what follows from symbolic sizes, when a node cannot fail, what it costs, what providers do wrong with
it, and which DirectML operator computes the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from anydml.cached import cached_property
from anydml.dataclass import dataclass, field
from anydml.ir.dims import Affine, Dim, may_be_zero
from anydml.ir.graph import Constant, Node, OnnxOp, TensorType, Type, Value
from anydml.onnx.ops.directml import DirectMLForm
from anydml.onnx.ops.releases import onnxruntime_since
from anydml.onnx.protos import AttributeProto, attribute_value
from anydml.onnx.schema import form_of
from anydml.ops.enums import ReduceFunction

if TYPE_CHECKING:
    from anydml.onnx.ops.native import Native

Array = NDArray[Any]
Content = Array | list[Any] | None
"""A tensor, a sequence, or an optional without content."""
Sizes = tuple[Dim, ...]


class NotFoldable(Exception):
    """The result is not defined, not portable between processors, or of a case that no rule covers."""


class NodeFailed(Exception):
    """The node fails on these inputs: whoever runs it must say so."""


class NodeView:
    """A node as rules see it: its opset, its attributes with the schema's defaults, its outputs' number."""

    def __init__(self, node: Node) -> None:
        self.op: OnnxOp = node.op
        self.version = node.op.version
        self._results, self._attributes = node.outputs, node.attributes

    @property
    def outputs(self) -> tuple[bool, ...]:
        """For each output whether somebody wants it."""
        return tuple([v is not None for v in self._results])

    @property
    def given(self) -> set[str]:
        """The names of the attributes that the node has."""
        return set(self._attributes)

    def attribute(self, name: str) -> Any:
        """The value, the schema's default, or None where there is none."""
        given = self._attributes.get(name)
        if given is not None:
            return attribute_value(given)
        form = form_of(self.op)
        return None if form is None else form.defaults.get(name)

    def int(self, name: str) -> int:
        """An integer that is there, or has a default."""
        found = self.attribute(name)
        if not isinstance(found, int):
            raise NotFoldable(f"no attribute {name}")
        return found

    def float(self, name: str) -> float:
        found = self.attribute(name)
        if not isinstance(found, float):
            raise NotFoldable(f"no attribute {name}")
        return found

    def text(self, name: str) -> str:
        found = self.attribute(name)
        if not isinstance(found, bytes):
            raise NotFoldable(f"no attribute {name}")
        return found.decode()

    def mode(self, name: str) -> str:
        """An attribute that is a word; "" where it is none."""
        found = self.attribute(name)
        return found.decode(errors="replace") if isinstance(found, bytes) else ""

    def ints(self, name: str) -> list[Any] | None:
        """A list of integers; None where it is not given and has no default, or is no list: one of an opset
        that has no such attribute may be anything."""
        found = self.attribute(name)
        return list(found) if isinstance(found, Sequence) and not isinstance(found, bytes) else None


class KnownNode(NodeView):
    """A node before it runs, as its rules see it: besides its attributes, what is known of its inputs."""

    def __init__(self, node: Node, constants: Mapping[Value, Constant]) -> None:
        super().__init__(node)
        self.node, self.bodies = node, node.bodies
        self._constants = constants

    @property
    def count(self) -> int:
        """How many inputs it names, those left out included."""
        return len(self.node.inputs)

    def value(self, k: int) -> Value | None:
        """Input k; None if it is left out."""
        return self.node.inputs[k] if k < len(self.node.inputs) else None

    def sizes(self, k: int) -> Sizes | None:
        """The sizes of input k as far as known; None if it is left out, or of unknown rank."""
        value = self.value(k)
        return None if value is None else value.sizes

    def size(self, k: int, axis: int) -> Dim:
        """One size of input k; None where that is not known. 1 for an axis that it does not have."""
        sizes = self.sizes(k)
        if sizes is None:
            return None
        return sizes[axis] if -len(sizes) <= axis < len(sizes) else 1

    def rank(self, k: int) -> int | None:
        value = self.value(k)
        return None if value is None else value.rank

    def dtype(self, k: int = 0) -> str | None:
        value = self.value(k)
        return value.type.dtype if value is not None and isinstance(value.type, TensorType) else None

    def content(self, k: int) -> Array | None:
        """The content of input k, if it is a constant."""
        value = self.value(k)
        constant = None if value is None else self._constants.get(value)
        content = None if constant is None else constant.content
        return content if isinstance(content, np.ndarray) else None

    def integers(self, k: int) -> list[int] | None:
        """The content of input k as a list, if it is a constant."""
        content = self.content(k)
        return None if content is None else content.reshape(-1).tolist()

    def axes(self) -> list[int] | None:
        """Its axes, which are an attribute or input 1, by opset; None where they are none or not known."""
        return self.ints("axes") if "axes" in self.given else self.integers(1)

    def input_sizes(self) -> list[Sizes] | None:
        """The sizes of all inputs that are there, if their ranks are known."""
        found = [v.sizes for v in self.node.reads]
        return None if None in found else [s for s in found if s is not None]

    def output_sizes(self) -> list[Sizes | None]:
        """The sizes of all outputs that somebody wants."""
        return [v.sizes for v in self.node.writes]

    def empty(self, *inputs: int) -> bool:
        """Whether one of these inputs (or of all) is known to have no elements."""
        return any(0 in (self.sizes(k) or ()) for k in inputs or range(self.count))

    def may_be_empty(self, k: int, first: int = 0, last: int | None = None) -> bool:
        """Whether one of these axes of input k may be empty."""
        sizes = self.sizes(k)
        return self.value(k) is not None and (sizes is None or any(map(may_be_zero, sizes[first:last])))


@dataclass(frozen=True)
class Quirk:
    """Something that onnxruntime does wrong with an operator."""

    reason: str
    """For explain(): what it does, of which nodes."""
    when: Callable[[KnownNode], bool]
    """Whether it may come to that, from what is known of a node before it runs."""
    fatal: bool = False
    """Whether it ends the process, or never returns."""
    empty: bool = False
    """Whether it does so only where an input has no elements, which can be looked at when it runs."""
    mended: bool = False
    """Whether it does not in regions, as they are made: only where it is given a whole file."""
    unrolled: bool = False
    """Whether a file that has the node no more, as flatten makes it, is right where the original is not."""
    before: tuple[int, int] | None = None
    """The release that does it right at last."""

    @property
    def told(self) -> str:
        """The reason, with the releases that it holds for."""
        if self.before is None:
            return self.reason
        return f"{self.reason}, before {'.'.join(map(str, self.before))}"

    def holds(self, node: KnownNode) -> bool:
        """Whether the installed onnxruntime may do this with a node."""
        return (self.before is None or not onnxruntime_since(*self.before)) and self.when(node)


def partly_mended(
    reason: str,
    when: Callable[[KnownNode], bool],
    mended: Callable[[KnownNode], bool],
    *,
    fatal: bool = False,
    empty: bool = False,
) -> tuple[Quirk, Quirk]:
    """A quirk that shows in regions, too, but of the nodes that are `mended` among those."""
    return (
        Quirk(reason, lambda n: when(n) and not mended(n), fatal, empty),
        Quirk(reason, mended, fatal, empty, mended=True),
    )


Fold = Callable[..., Content | Sequence[Content]]
"""fold(node: NodeView, *inputs: Content): inputs that are left out are None, those left out at the end may
be missing. One output is answered with as it is, several as a tuple."""
Symbols = Array
"""Integers as far as they are known: an array of Affine."""
Speculatable = Callable[[KnownNode], bool | None]
"""Whether a node cannot fail, whatever is fed; None: it cannot if it runs on zeros of known sizes.
NotFoldable: it may, and would whatever the sizes of its inputs were."""


class SafeOperands(Protocol):
    """Operands that are a node's inputs where its branch is taken, and others where it is not.

    Each raises NotFoldable where there is no such input, or no operator that chooses one of its type.
    """

    def number(self, k: int, otherwise: float | Sequence[int]) -> Value:
        """Input k, or the same number all over, or these numbers."""

    def one_of(self, taken: int, otherwise: int) -> Value:
        """One of two numbers."""

    def same_as(self, k: int, other: int) -> Value:
        """Input k, or the other one."""

    def sizes_of(self, k: int, other: int) -> Value:
        """Input k, or the sizes of the other one."""

    def nonempty(self, k: int, axes: Iterable[int], least: int = 1) -> Value:
        """Input k, or as many elements more along these axes."""

    def at_most(self, x: Value, axes: Iterable[int], count: int) -> Value:
        """A value, or its first elements along these axes."""

    def no_rows(self, k: int) -> Value:
        """Input k, or none of it."""


@dataclass(frozen=True)
class Safe:
    """Inputs, by number, on which a node cannot fail while its branch is not taken.

    `passes`: it then gives its first input as it is. `runs_body`: of its body, no node may be able to fail.
    """

    operands: Mapping[int, Value]
    passes: bool = False
    runs_body: bool = False


@dataclass(frozen=True)
class OpInfo:
    """An operator of ONNX's own domain, at every opset."""

    name: str
    fold: Fold | None = None
    """The operator in NumPy. Raises NotFoldable; ValueError and IndexError mean that the node fails."""
    symbols: Callable[[NodeView, list[Any], tuple[int, ...] | None], Symbols | None] | None = None
    """(node, what is known of the inputs' integers, the output's sizes) -> what is known of the output's."""
    symbol_inputs: int = 1
    """So many inputs something must be known of, for that."""
    compare: Callable[[Affine], bool | None] | None = None
    """Of a comparison: its result, by what is known of a - b."""
    measures: Callable[[NodeView, Sequence[Affine]], Symbols] | None = None
    """(node, the input's sizes) -> its output, where that follows from nothing else."""
    absorbing: bool | None = None
    """The bool that decides the result alone, whatever the other operand is."""
    implies: Callable[[KnownNode, bool], dict[int, bool]] = lambda n, truth: {}
    """(node, its output) -> bools that its inputs must be then, by number."""
    result: Callable[[KnownNode], Sequence[Type | None] | None] | None = None
    """The types of its outputs; None where ONNX's inference has to be asked."""
    sizes: Callable[[NodeView, Any, Any], list[Affine] | None] | None = None
    """(node, sizes of the inputs, what is known of their integers) -> sizes, where inference has none."""
    counts: bool = False
    """Whether the sizes of its outputs follow from its inputs' data."""
    unsure_axes: Callable[[KnownNode, int], range] | None = None
    """(node, rank) -> axes of its output that inference tells otherwise than libraries compute them."""
    rank_unsure: Callable[[KnownNode], bool] | None = None
    """Whether libraries give another rank than inference."""
    never_empty: bool = False
    """Whether it fails rather than make something empty, unless batch or channels have no elements."""
    form_error: Callable[[Mapping[str, AttributeProto]], str | None] | None = None
    """What is wrong with its attributes that the schema does not say."""
    minimums: Mapping[str, int] = field(default_factory=dict)
    """Attributes of which less means nothing: onnxruntime ends the process on some, as it divides by them."""
    long_integers: bool = False
    """Whether integers among its attributes may be of 64 bits. Libraries keep those of others in 32."""
    wrong_ranks: Callable[[KnownNode], bool] | None = None
    """Whether the ranks of its inputs prove that it fails, whatever the sizes turn out to be."""
    parameter: Callable[[Node, int], Type | None] = lambda n, k: None
    """The type of parameter k of its body in the first iteration, as far as the node's inputs say it."""
    row: Callable[[Node, int], Type | None] = lambda n, k: None
    """The type of output k of its body, of which it gives a row for each iteration, as far as the node's
    outputs say it."""
    states: Callable[[Node], Mapping[int, int]] = lambda n: {}
    """Parameters of its body that are, in the next iteration, what one of the body's outputs was."""
    resizes_states: bool = False
    """Whether these may have other sizes then: no type of a row follows from those that they begin with."""
    agreed: Callable[[Node], Node] | None = None
    """The node in the form that libraries and ONNX's inference understand alike, once sizes are known."""
    same_as_input: Callable[[KnownNode], bool] | None = None
    """Whether its output is its first input as it is."""
    constant: Callable[[KnownNode], Array | None] | None = None
    """Its output, where the types of its inputs decide it."""
    equates: bool = False
    """Whether it says that its two inputs are equal."""
    needs_one: Callable[[KnownNode], Sequence[int]] = lambda n: ()
    """Axes of input 0 whose sizes must be 1, or it fails."""
    impossible: Callable[[KnownNode, Sequence[Type | None], Sequence[int] | None], bool] | None = None
    """(node, inferred types, integers of input 1) -> whether sizes that inference accepts prove a failure."""
    speculatable: Speculatable | None = None
    """None: it may fail, or take long."""
    safe: Callable[[KnownNode, SafeOperands], Safe | None] | None = None
    """Operands on which it cannot fail, for where its branch is not taken; None if there are none."""
    safe_if_sized: Callable[[KnownNode, Sequence[Affine], Sequence[Symbols | None]], bool] | None = None
    """(node, sizes of its output, what is known of the inputs' integers) -> whether it cannot fail, since its
    output's sizes follow from others'."""
    any_batch: bool = False
    """Whether it does not matter, where it runs on zeros, how many samples there are along the first axis."""
    moves_first: bool = False
    """Whether it cannot fail either if its first input is of integers that are not known."""
    flops: Callable[[KnownNode, int], int] | None = None
    """(node, elements of its outputs) -> multiplications and additions; else one for each element."""
    matrix_only: bool = False
    """Whether libraries make something odd of other ranks than 2, which ONNX has not."""
    draws: Callable[[KnownNode], bool] | None = None
    """Of an operator that draws random numbers: whether a node does."""
    sequence: Callable[[KnownNode], Type | None] | None = None
    """The type of the sequence that it makes, where inference knows less of its items."""
    makes_container: bool = False
    """Whether it makes a sequence or an optional."""
    quirks: tuple[Quirk, ...] = ()
    """What onnxruntime does wrong."""
    keeps_weights: bool = False
    """Whether onnxruntime leaves its constants as they are. Those of others it may turn, as it moves a
    Transpose of the other operand behind an Add, and calls the turned ones as before."""
    sizes_told: bool = False
    """Whether libraries infer wrong sizes where they are not told those of inputs."""
    channels_told: bool = False
    """Whether onnxruntime computes it with channels in blocks, if it knows how many there are."""
    reference_error: tuple[str, Callable[[KnownNode], bool]] | None = None
    """What onnx.reference does wrong, and with which nodes."""
    extends: Mapping[int, int] = field(default_factory=dict)
    """Revisions with successors that have only attributes more, which are by default what was before."""
    changed: bool = False
    """Whether a revision has another meaning that its signature does not show."""
    directml: DirectMLForm | tuple[DirectMLForm, ...] | None = None
    """The DirectML operator that computes the same; several, for different nodes."""

    reduction: ReduceFunction | None = None
    """The function of DirectML's REDUCE that it is, of floats."""
    native: Native | None = None
    """How programs compute it, where no DirectML operator says so."""
    native_constants: tuple[int, ...] = ()
    """Inputs, by number, that must be constants for that."""

    @cached_property
    def seen_alike(self) -> bool:
        """Whether libraries see the types of its outputs as inference does, whatever its inputs are."""
        return not (self.rank_unsure or self.impossible or self.unsure_axes or self.sequence)

    @property
    def forms(self) -> tuple[DirectMLForm, ...]:
        """As DirectML operators."""
        return (self.directml,) if isinstance(self.directml, DirectMLForm) else self.directml or ()
