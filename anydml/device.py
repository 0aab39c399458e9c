"""DirectML's way of working: a device creates an operator from a description, compiles it, dispatches it.

device = Device(feature_level="5_0")
operator = device.create_operator({"Type": "ELEMENT_WISE_IF", "Desc": {...}})   # checks every rule
compiled = device.compile_operator(operator)                                    # makes the kernel
compiled.dispatch({"ConditionTensor": c, "ATensor": a, "BTensor": b}, {"OutputTensor": y})
bound = compiled.bind(inputs, outputs)                                          # checks the arrays once
bound.dispatch()                                                                # and again, and again
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from anydml.compiled_graph import CompiledGraph
from anydml.directml.descriptions import Checked, Description, OperatorDesc, read_desc, to_desc, to_graph
from anydml.directml.graph_desc import GraphDesc, read_graph_desc, to_directml_graph
from anydml.errors import InvalidInput, InvalidOperator, Problem, Unsupported
from anydml.heavy import implementation_of
from anydml.ops.call import names_of
from anydml.ops.enums import FeatureLevel, OperatorType, parse
from anydml.ops.tensor_desc import TensorDesc
from anydml.runtime.bind import Binding, Compiled
from anydml.runtime.threads import check_threads

__all__ = ["Binding", "CompiledOperator", "Device", "DeviceOperator", "validate"]


class Device:
    """A DirectML device of a feature level: it accepts exactly what the documents allow there.

    Args:
        feature_level: a `FeatureLevel` or its name ("5_0", "DML_FEATURE_LEVEL_5_0"); default the newest.
        threads: threads of one dispatch at most; default as many as cores.

    Raises:
        InvalidOperator: there is no such feature level.
    """

    def __init__(
        self, feature_level: FeatureLevel | str | int | None = None, *, threads: int | None = None
    ) -> None:
        self.feature_level = _level(feature_level)
        self._threads = check_threads(threads)

    def create_operator(self, desc: Description) -> DeviceOperator:
        """Check a description against DirectML's rules (IDMLDevice::CreateOperator).

        Args:
            desc: an `OperatorDesc`, or the dictionary of DxDispatch JSON.

        Raises:
            InvalidOperator: with every broken rule, one line each; a field that is not known breaks one.
            Unsupported: DirectML has the operator, but it is not implemented here.
        """
        checked, problems = read_desc(desc, self.feature_level)
        if problems or checked is None:
            raise InvalidOperator(*problems)
        return DeviceOperator(checked, self.feature_level)

    def compile_operator(self, operator: DeviceOperator) -> CompiledOperator:
        """Make the operator's kernel (IDMLDevice::CompileOperator).

        Raises:
            InvalidInput: no operator, or one that a device of a newer feature level created.
        """
        if not isinstance(operator, DeviceOperator):
            kind = type(operator).__name__
            remedy = "make it with device.create_operator(...)"
            raise InvalidInput(Problem("compile_operator", f"expected an operator, but got {kind}", remedy))
        theirs, ours = operator._feature_level, self.feature_level
        if theirs > ours:
            message = (
                f"expected an operator of feature level {ours.label} or older, but got one of {theirs.label}"
            )
            raise InvalidInput(
                Problem("compile_operator", message, "create it with the device that compiles it")
            )
        return CompiledOperator(operator, self._threads)

    def compile_graph(self, desc: GraphDesc | Mapping[str, Any]) -> CompiledGraph:
        """Compile a graph of operators (IDMLDevice1::CompileGraph).

        Args:
            desc: a `GraphDesc`, whose edges have names, such as `read_serialized_graph` gives; or a
                DML_GRAPH_DESC as a dictionary of its fields, whose edges count nodes and tensors.

        Raises:
            InvalidOperator: with everything that is wrong with its nodes and edges.
        """
        level = self.feature_level
        if level < FeatureLevel.FL_2_1:
            message = f"expected a feature level of 2_1 or newer, but got {level.label}"
            raise InvalidOperator(Problem("compile_graph", message, "graphs exist from 2_1 on"))
        if not isinstance(desc, GraphDesc):
            if not isinstance(desc, Mapping):
                message = f"expected a GraphDesc or a dictionary, but got {type(desc).__name__}"
                raise InvalidInput(Problem("compile_graph", message))
            desc = read_graph_desc(desc, level)
        read = to_directml_graph(desc, level)
        return CompiledGraph(read.graph, read.inputs, set(), read.outputs, self._threads, read.values)

    def __repr__(self) -> str:
        return f"Device(feature_level={self.feature_level.label!r})"


def _level(level: FeatureLevel | str | int | None) -> FeatureLevel:
    return FeatureLevel.newest() if level is None else parse(FeatureLevel, level, "feature_level")


def validate(desc: Description, feature_level: FeatureLevel | str | int | None = None) -> list[Problem]:
    """Everything that is wrong with an operator description at a feature level; nothing is raised for it.

    An operator that DirectML has but that is not implemented here is a problem, too.

    >>> validate({"Type": "ELEMENT_WISE_FI", "Desc": {}})[0].remedy
    "did you mean 'ELEMENT_WISE_IF'?"
    """
    try:
        return read_desc(desc, _level(feature_level))[1]
    except (InvalidOperator, Unsupported) as error:  # no such level; no such operator here
        return list(error.problems)


class DeviceOperator:
    """An operator whose description holds (IDMLOperator)."""

    def __init__(self, checked: Checked, feature_level: FeatureLevel) -> None:
        self._checked, self._feature_level = checked, feature_level

    @property
    def type(self) -> OperatorType:
        return self._checked.operator.type

    @property
    def tensors(self) -> Mapping[str, TensorDesc]:
        """The tensors by field name."""
        return self._checked.tensors

    @property
    def attributes(self) -> Mapping[str, Any]:
        """All other fields by name."""
        return self._checked.attributes

    @property
    def desc(self) -> OperatorDesc:
        """Its description."""
        return to_desc(self._checked)

    def __repr__(self) -> str:
        return f"<{self._checked.operator.name} operator>"

    def __reduce__(self) -> tuple[Any, ...]:
        return _create, (self.desc, self._feature_level)


def _create(desc: OperatorDesc, feature_level: FeatureLevel) -> DeviceOperator:
    return Device(feature_level).create_operator(desc)


class CompiledOperator(Compiled):
    """An operator that can run (IDMLCompiledOperator). Safe to use from several threads at once.

    Each array is C-contiguous memory of its tensor's data type, read through the tensor's sizes and
    strides; its own shape does not matter.

    It is pickled by its description, with what `initialize` was given, and compiled again.
    """

    def __init__(self, operator: DeviceOperator, threads: int | None) -> None:
        self._operator = operator
        checked = operator._checked
        record, tensors = checked.operator, checked.tensors
        inputs, outputs = (
            {n: tensors[n] for n in names_of(operands, tensors) if n in tensors}
            for operands in (record.inputs, record.outputs)
        )
        graph = to_graph(checked)
        super().__init__(
            record.name, graph, inputs, outputs, threads, record.in_place, implement=implementation_of
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return _compile, (self._operator, self._threads, self.owned)


def _compile(
    operator: DeviceOperator, threads: int | None, owned: Mapping[str, NDArray[Any]]
) -> CompiledOperator:
    compiled = CompiledOperator(operator, threads)
    if owned:
        compiled.initialize(owned)
    return compiled
