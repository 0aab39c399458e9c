"""Kernel bodies over planes of which some operands lie turned: neighbours along the rows of the output are
far apart in them, and neighbours down its columns lie side by side.

Read one by one, each element of such an operand comes with a cache line of others. So a plane is walked in
square tiles: a turned operand's tile is brought into the output's order near by, a block of vectors at a
time, and the ordinary body runs over the tile's rows. An "element" of the iteration space is a whole column;
how long it is, and each operand's stride down it, follow the operands' addresses, as where rows are reduced.
"""

from __future__ import annotations

from collections.abc import Sequence

from anydml.codegen.group import KernelSpec, KernelVariant
from anydml.codegen.target import Target


def _lanes(width: int, target: Target) -> int:
    """Elements of a block's side, by their bytes: as many as there are vectors to turn them in."""
    return min(target.vector_bytes // width, 16)


def tile_size(widths: Sequence[int]) -> int:
    """Elements of a tile's side: some tiles fit into the first cache."""
    return 256 // max(4, *widths)


def scratch_bytes(group: KernelSpec, turned: Sequence[int]) -> int:
    """What the tiles take of the stack."""
    return sum(tile_size(group.widths) ** 2 * group.widths[k] for k in turned)


def tiled_body(group: KernelSpec, variant: KernelVariant, target: Target, plain: str) -> str:
    """The module of a body over planes. `plain`: that of the ordinary body, to which turned operands are
    packed."""
    count, side = len(group.operands), tile_size(group.widths)
    lines = ["define void @row(ptr %operands, ptr %strides, i64 %n) {", "entry:"]
    lines += [f"  %at = alloca [{count} x i64], align 64", f"  %steps = alloca [{count} x i64], align 64"]
    for k in variant.turned:
        lines.append(f"  %tile{k} = alloca [{side * side * group.widths[k]} x i8], align 64")
    lines += _word("rows", "%operands", count)
    for k in range(count):
        lines += [*_word(f"base{k}", "%operands", k), *_word(f"along{k}", "%strides", k)]
        lines += _word(f"down{k}", "%operands", count + 1 + k)
        lines += _store("%steps", k, str(group.widths[k]) if k in variant.turned else f"%along{k}")
    lines += [
        "  br label %across",
        "across:",
        "  %c = phi i64 [ 0, %entry ], [ %c.next, %across.done ]",
        "  %c.left = sub i64 %n, %c",
        f"  %cols = call i64 @llvm.umin.i64(i64 %c.left, i64 {side})",
    ]
    for k in range(count):
        lines += [f"  %c.bytes{k} = mul i64 %c, %along{k}", f"  %left{k} = add i64 %base{k}, %c.bytes{k}"]
    lines += [
        "  br label %tile",
        "tile:",
        "  %r = phi i64 [ 0, %across ], [ %r.next, %tile.done ]",
        "  %r.left = sub i64 %rows, %r",
        f"  %tall = call i64 @llvm.umin.i64(i64 %r.left, i64 {side})",
    ]
    for k in range(count):
        lines += [f"  %r.bytes{k} = mul i64 %r, %down{k}", f"  %corner{k} = add i64 %left{k}, %r.bytes{k}"]
    copies = [e.opcode for e in group.outputs] == ["read"]
    direct = copies and variant.direct
    for k in variant.turned:
        width = group.widths[k]
        to, pitch = ("%to", "%down1") if direct else (f"%tile{k}", str(side * width))
        lines += [
            f"  %from{k} = inttoptr i64 %corner{k} to ptr",
            *(["  %to = inttoptr i64 %corner1 to ptr"] if direct else []),
            f"  call void @turn{width}(ptr %from{k}, i64 %along{k}, ptr {to}, i64 {pitch}, "
            "i64 %tall, i64 %cols)",
        ]
    lines += ["  br label %tile.done"] if direct else _lines_of_tile(group, variant, side, copies)
    lines += [
        "tile.done:",
        "  %r.next = add i64 %r, %tall",
        "  %r.more = icmp ult i64 %r.next, %rows",
        "  br i1 %r.more, label %tile, label %across.done",
        "across.done:",
        "  %c.next = add i64 %c, %cols",
        "  %c.more = icmp ult i64 %c.next, %n",
        "  br i1 %c.more, label %across, label %return",
        "return:",
        "  ret void",
        "}",
    ]
    body = plain.replace("define void @row(", "define internal void @line(")
    declared = [
        "declare i64 @llvm.umin.i64(i64, i64)",
        "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)",
    ]
    parts = [body, *(d for d in declared if d not in body), *lines]
    for width in sorted({group.widths[k] for k in variant.turned}):
        parts += [*_turn(width, target), *_turn_rest(width)]
    return "\n".join(parts) + "\n"


def _lines_of_tile(group: KernelSpec, variant: KernelVariant, side: int, copies: bool) -> list[str]:
    """The ordinary body over the rows of a tile, which are only moved if it `copies`."""
    lines = [f"  %tile.at{k} = ptrtoint ptr %tile{k} to i64" for k in variant.turned]
    lines += ["  br label %line", "line:", "  %i = phi i64 [ 0, %tile ], [ %i.next, %line ]"]
    for k in range(len(group.operands)):
        start, pitch = f"%corner{k}", f"%down{k}"
        if k in variant.turned:
            start, pitch = f"%tile.at{k}", str(side * group.widths[k])
        lines += [f"  %i.bytes{k} = mul i64 %i, {pitch}", f"  %line{k} = add i64 {start}, %i.bytes{k}"]
        lines += _store("%at", k, f"%line{k}")
    work = ["  call void @line(ptr %at, ptr %steps, i64 %cols)"]
    if copies:
        work = [
            "  %source = inttoptr i64 %line0 to ptr",
            "  %home = inttoptr i64 %line1 to ptr",
            f"  %long = mul i64 %cols, {group.widths[0]}",
            "  call void @llvm.memcpy.p0.p0.i64(ptr %home, ptr %source, i64 %long, i1 false)",
        ]
    return [
        *lines,
        *work,
        "  %i.next = add i64 %i, 1",
        "  %i.more = icmp ult i64 %i.next, %tall",
        "  br i1 %i.more, label %line, label %tile.done",
    ]


def _word(name: str, words: str, place: int) -> list[str]:
    return [
        f"  %{name}.p = getelementptr i64, ptr {words}, i64 {place}",
        f"  %{name} = load i64, ptr %{name}.p",
    ]


def _store(words: str, place: int, value: str) -> list[str]:
    name = f"{words}.{place}"
    return [f"  {name} = getelementptr i64, ptr {words}, i64 {place}", f"  store i64 {value}, ptr {name}"]


def _turn(width: int, target: Target) -> list[str]:
    """A function that brings a tile into the output's order, in blocks that are turned in registers."""
    lanes = _lanes(width, target)
    vector = f"<{lanes} x i{8 * width}>"
    lines = [
        f"define internal void @turn{width}(ptr %from, i64 %step, ptr %to, i64 %pitch, "
        "i64 %rows, i64 %cols) {",
        "entry:",
        "  br label %across",
        "across:",
        "  %c = phi i64 [ 0, %entry ], [ %c.next, %down.done ]",
        f"  %c.next = add i64 %c, {lanes}",
        "  %c.fits = icmp ule i64 %c.next, %cols",
        "  %c.from = mul i64 %c, %step",
        "  %left = getelementptr i8, ptr %from, i64 %c.from",
        f"  %c.to = mul i64 %c, {width}",
        "  %top = getelementptr i8, ptr %to, i64 %c.to",
        "  br i1 %c.fits, label %down, label %rest",
        "down:",
        "  %r = phi i64 [ 0, %across ], [ %r.next, %block ]",
        f"  %r.next = add i64 %r, {lanes}",
        "  %r.fits = icmp ule i64 %r.next, %rows",
        "  br i1 %r.fits, label %block, label %down.done",
        "block:",
        f"  %r.from = mul i64 %r, {width}",
        "  %corner = getelementptr i8, ptr %left, i64 %r.from",
        "  %r.to = mul i64 %r, %pitch",
        "  %home = getelementptr i8, ptr %top, i64 %r.to",
    ]
    for j in range(lanes):
        lines += [
            f"  %f{j}.at = mul i64 %step, {j}",
            f"  %f{j} = getelementptr i8, ptr %corner, i64 %f{j}.at",
            f"  %v0.{j} = load {vector}, ptr %f{j}, align 1",
        ]
    rounds = lanes.bit_length() - 1
    low = [k // 2 + lanes * (k % 2) for k in range(lanes)]
    masks = [f"<{lanes} x i32> <{', '.join(f'i32 {m + start}' for m in low)}>" for start in (0, lanes // 2)]
    for turn in range(rounds):  # each interleaves the first half of the vectors with the second
        for j in range(lanes // 2):
            pair = f"{vector} %v{turn}.{j}, {vector} %v{turn}.{j + lanes // 2}"
            for half in (0, 1):
                lines.append(f"  %v{turn + 1}.{2 * j + half} = shufflevector {pair}, {masks[half]}")
    for j in range(lanes):
        lines += [
            f"  %t{j}.at = mul i64 %pitch, {j}",
            f"  %t{j} = getelementptr i8, ptr %home, i64 %t{j}.at",
            f"  store {vector} %v{rounds}.{j}, ptr %t{j}, align 1",
        ]
    rest = f"call void @turn{width}.rest(ptr %left, i64 %step, ptr %top, i64 %pitch"
    lines += [
        "  br label %down",
        "down.done:",
        f"  {rest}, i64 %r, i64 %rows, i64 {lanes})",
        "  br label %across",
        "rest:",
        "  %c.left = sub i64 %cols, %c",
        f"  {rest}, i64 0, i64 %rows, i64 %c.left)",
        "  ret void",
        "}",
    ]
    return lines


def _turn_rest(width: int) -> list[str]:
    """The same for rows from `first` on, one element after the other."""
    kind = f"i{8 * width}"
    return [
        f"define internal void @turn{width}.rest(ptr %from, i64 %step, ptr %to, i64 %pitch, "
        "i64 %first, i64 %rows, i64 %cols) {",
        "entry:",
        "  %some.rows = icmp ult i64 %first, %rows",
        "  %some.cols = icmp ne i64 %cols, 0",
        "  %some = and i1 %some.rows, %some.cols",
        "  br i1 %some, label %across, label %return",
        "across:",
        "  %c = phi i64 [ 0, %entry ], [ %c.next, %across.done ]",
        "  %c.from = mul i64 %c, %step",
        "  %left = getelementptr i8, ptr %from, i64 %c.from",
        f"  %top = getelementptr {kind}, ptr %to, i64 %c",
        "  br label %down",
        "down:",
        "  %r = phi i64 [ %first, %across ], [ %r.next, %down ]",
        f"  %x.at = getelementptr {kind}, ptr %left, i64 %r",
        f"  %x = load {kind}, ptr %x.at, align 1",
        "  %r.to = mul i64 %r, %pitch",
        "  %y.at = getelementptr i8, ptr %top, i64 %r.to",
        f"  store {kind} %x, ptr %y.at, align 1",
        "  %r.next = add i64 %r, 1",
        "  %r.more = icmp ult i64 %r.next, %rows",
        "  br i1 %r.more, label %down, label %across.done",
        "across.done:",
        "  %c.next = add i64 %c, 1",
        "  %c.more = icmp ult i64 %c.next, %cols",
        "  br i1 %c.more, label %across, label %return",
        "return:",
        "  ret void",
        "}",
    ]
