"""DirectML's way of working: a device creates an operator from a description, compiles it, dispatches it.

device = Device(feature_level="5_0")
operator = device.create_operator({"Type": "ELEMENT_WISE_IF", "Desc": {...}})   # checks every rule
compiled = device.compile_operator(operator)                                    # makes the kernel
compiled.dispatch({"ConditionTensor": c, "ATensor": a, "BTensor": b}, {"OutputTensor": y})
bound = compiled.bind(inputs, outputs)                                          # checks the arrays once
bound.dispatch()                                                                # and again, and again
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from numpy.typing import NDArray

from anydml.compiled_graph import CompiledGraph
from anydml.directml.counted_graph import read_graph_desc
from anydml.directml.descriptions import Checked, Description, OperatorDesc, read_desc, to_desc, to_graph
from anydml.directml.graph_desc import GraphDesc, to_directml_graph
from anydml.errors import InvalidInput, InvalidOperator, Problem, counted
from anydml.heavy import implementation_of
from anydml.ir.transforms import eliminate_dead_code
from anydml.ops.call import names_of
from anydml.ops.dtypes import SIZE
from anydml.ops.enums import ExecutionFlags, Feature, FeatureLevel, OperatorType, TensorDataType, parse
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

    def check_feature_support(
        self,
        feature: Feature | str | int,
        query: TensorDataType | str | Sequence[FeatureLevel | str | int] = (),
    ) -> bool | FeatureLevel:
        """What the device has (IDMLDevice::CheckFeatureSupport).

        Args:
            feature: a `Feature` or its name.
            query: of TENSOR_DATA_TYPE_SUPPORT a data type; of FEATURE_LEVELS the levels that are of interest,
                default all.

        Returns:
            Whether tensors of the type can be made; the newest of the levels that the device has.

        Raises:
            InvalidOperator: there is no such feature, type or level; or none of the levels is the device's.
        """
        if parse(Feature, feature, "feature") is Feature.TENSOR_DATA_TYPE_SUPPORT:
            dtype = parse(TensorDataType, query, "query")
            if dtype not in SIZE:  # of 4 bits
                return dtype is not TensorDataType.UNKNOWN and self.feature_level >= FeatureLevel.FL_6_3
            return SIZE[dtype] < 8 or self.feature_level >= FeatureLevel.FL_3_0
        levels: Any = query or list(FeatureLevel)
        asked = [parse(FeatureLevel, q, "query") for q in levels]
        found = [level for level in asked if level <= self.feature_level]
        if not found:
            got = ", ".join(level.label for level in asked)
            message = f"expected a level up to {self.feature_level.label}, but got {got}"
            raise InvalidOperator(Problem("check_feature_support", message))
        return max(found)

    def create_operator(self, desc: Description) -> DeviceOperator:
        """Check a description against DirectML's rules (IDMLDevice::CreateOperator).

        Args:
            desc: an `OperatorDesc`, or the dictionary of DxDispatch JSON.

        Raises:
            InvalidOperator: with every broken rule, one line each; a field that is not known breaks one.
        """
        checked, problems = read_desc(desc, self.feature_level)
        if problems or checked is None:
            raise InvalidOperator(*problems)
        return DeviceOperator(checked, self.feature_level)

    def compile_operator(
        self, operator: DeviceOperator, flags: ExecutionFlags | str | int = ExecutionFlags.NONE
    ) -> CompiledOperator:
        """Make the operator's kernel (IDMLDevice::CompileOperator).

        Args:
            operator: what `create_operator` gave.
            flags: `ExecutionFlags` or their names; none changes a result here.

        Raises:
            InvalidInput: no operator, or one that a device of a newer feature level created.
        """
        parse(ExecutionFlags, flags, "flags")
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

    def compile_graph(
        self, desc: GraphDesc | Mapping[str, Any], flags: ExecutionFlags | str | int = ExecutionFlags.NONE
    ) -> CompiledGraph:
        """Compile a graph of operators (IDMLDevice1::CompileGraph).

        Args:
            desc: a `GraphDesc`, whose edges have names, such as `read_serialized_graph` gives; or a
                DML_GRAPH_DESC as a dictionary of its fields, whose edges count nodes and tensors.
            flags: `ExecutionFlags` or their names; none changes a result here.

        Raises:
            InvalidOperator: with everything that is wrong with its nodes and edges.
        """
        level = self.feature_level
        parse(ExecutionFlags, flags, "flags")
        if level < FeatureLevel.FL_2_1:
            message = f"expected a feature level of 2_1 or newer, but got {level.label}"
            raise InvalidOperator(Problem("compile_graph", message, "graphs exist from 2_1 on"))
        if not isinstance(desc, GraphDesc):
            if not isinstance(desc, Mapping):
                message = f"expected a GraphDesc or a dictionary, but got {type(desc).__name__}"
                raise InvalidInput(Problem("compile_graph", message))
            desc = read_graph_desc(desc, level)
        read = to_directml_graph(desc, level)
        graph = eliminate_dead_code(read.graph)
        return CompiledGraph(graph, read.inputs, set(), read.outputs, self._threads, read.values)

    def create_operator_initializer(self, operators: Sequence[Compiled]) -> OperatorInitializer:
        """What gives several compiled operators and graphs their OWNED_BY_DML tensors together
        (IDMLDevice::CreateOperatorInitializer)."""
        return OperatorInitializer(operators)

    def __repr__(self) -> str:
        return f"Device(feature_level={self.feature_level.label!r})"


def _level(level: FeatureLevel | str | int | None) -> FeatureLevel:
    return FeatureLevel.newest() if level is None else parse(FeatureLevel, level, "feature_level")


def validate(desc: Description, feature_level: FeatureLevel | str | int | None = None) -> list[Problem]:
    """Everything that is wrong with an operator description at a feature level; nothing is raised for it.

    >>> validate({"Type": "ELEMENT_WISE_FI", "Desc": {}})[0].remedy
    "did you mean 'ELEMENT_WISE_IF'?"
    """
    try:
        return read_desc(desc, _level(feature_level))[1]
    except InvalidOperator as error:  # no such level
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
        return MappingProxyType(self._checked.tensors)  # what was checked stays so

    @property
    def attributes(self) -> Mapping[str, Any]:
        """All other fields by name."""
        return MappingProxyType(self._checked.attributes)

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


class OperatorInitializer:
    """Initializes compiled operators together: all of them, or none (IDMLOperatorInitializer)."""

    def __init__(self, operators: Sequence[Compiled]) -> None:
        wrong = [x for x in operators if not isinstance(x, Compiled)]
        if wrong:
            kind = type(wrong[0]).__name__
            remedy = "make it with device.compile_operator(...)"
            message = f"expected compiled operators or graphs, but got {kind}"
            raise InvalidInput(Problem("create_operator_initializer", message, remedy))
        self._operators = list(operators)

    def dispatch(self, inputs: Sequence[Mapping[str, NDArray[Any]]]) -> None:
        """Copy the tensors that each operator is to own.

        Args:
            inputs: for each operator, in their order, arrays by name.

        Raises:
            InvalidInput: with everything that is wrong; no operator is changed then.
        """
        if len(inputs) != len(self._operators):
            message = (
                f"expected arrays for {counted(len(self._operators), 'operator')}, but got {len(inputs)}"
            )
            raise InvalidInput(Problem("initializer", message))
        given, problems = [], []
        for k, (operator, arrays) in enumerate(zip(self._operators, inputs, strict=True)):
            try:
                given.append(operator.check_owned(arrays))
            except InvalidInput as error:
                problems += [p.under(f"operator {k}") for p in error.problems]
        if problems:
            raise InvalidInput(*problems)
        for operator, owned in zip(self._operators, given, strict=True):
            operator.take(owned)


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
