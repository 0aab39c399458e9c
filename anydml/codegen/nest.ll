; The loop nest around every kernel.
;
; A kernel is only its body: void body(ptr addresses, ptr strides, i64 n), n elements along the innermost
; dimension. Everything about shapes is data, in a launch descriptor: descriptor.py has its layout, and
; FIELD(...) stands for the places of its fields.

declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)

; Elements [index * chunk, (index + 1) * chunk) of the iteration space, in row-major order.
define void @anydml_drive(ptr %descriptor, i64 %index) {
entry:
  %pointers = alloca [MAX_OPERANDS x i64], align 64
  %at = alloca [MAX_OPERANDS x i64], align 64
  %counter = alloca [64 x i64], align 64
  %chunk.p = getelementptr i64, ptr %descriptor, i64 FIELD(chunk)
  %chunk = load i64, ptr %chunk.p
  %total.p = getelementptr i64, ptr %descriptor, i64 FIELD(elements)
  %total = load i64, ptr %total.p
  %inner.p = getelementptr i64, ptr %descriptor, i64 FIELD(inner)
  %inner = load i64, ptr %inner.p
  %rank.p = getelementptr i64, ptr %descriptor, i64 FIELD(rank)
  %rank = load i64, ptr %rank.p
  %k.p = getelementptr i64, ptr %descriptor, i64 FIELD(operands)
  %k = load i64, ptr %k.p
  %row.p = getelementptr i64, ptr %descriptor, i64 FIELD(kernel)
  %row = load ptr, ptr %row.p
  %bases = getelementptr i64, ptr %descriptor, i64 FIELD(addresses)
  %strides = getelementptr i64, ptr %bases, i64 %k
  %sizes = getelementptr i64, ptr %strides, i64 %k
  %outer = getelementptr i64, ptr %sizes, i64 %rank
  %begin = mul i64 %index, %chunk
  %limit = add i64 %begin, %chunk
  %short = icmp ult i64 %limit, %total
  %end = select i1 %short, i64 %limit, i64 %total
  %row0 = udiv i64 %begin, %inner
  %col0 = urem i64 %begin, %inner
  %bytes = shl i64 %k, 3
  call void @llvm.memcpy.p0.p0.i64(ptr %pointers, ptr %bases, i64 %bytes, i1 false)
  br label %locate

locate:                                  ; the outer counters of the first row, last dimension first
  %ld = phi i64 [ %rank, %entry ], [ %ld1, %locate.done ]
  %lrow = phi i64 [ %row0, %entry ], [ %lrow1, %locate.done ]
  %l.more = icmp sgt i64 %ld, 0
  br i1 %l.more, label %locate.dim, label %rows
locate.dim:
  %ld1 = sub i64 %ld, 1
  %lsize.p = getelementptr i64, ptr %sizes, i64 %ld1
  %lsize = load i64, ptr %lsize.p
  %lcount = urem i64 %lrow, %lsize
  %lrow1 = udiv i64 %lrow, %lsize
  %lcount.p = getelementptr i64, ptr %counter, i64 %ld1
  store i64 %lcount, ptr %lcount.p
  call void @advance(ptr %pointers, ptr %outer, i64 %ld1, i64 %k, i64 %lcount)
  br label %locate.done
locate.done:
  br label %locate

rows:
  %pos = phi i64 [ %begin, %locate ], [ %pos1, %step.done ]
  %col = phi i64 [ %col0, %locate ], [ 0, %step.done ]
  %left = sub i64 %end, %pos
  %inrow = sub i64 %inner, %col
  %less = icmp ult i64 %left, %inrow
  %n = select i1 %less, i64 %left, i64 %inrow
  br label %shift
shift:                                   ; where this stretch of the row begins in each operand
  %si = phi i64 [ 0, %rows ], [ %si1, %shift ]
  %sp.p = getelementptr i64, ptr %pointers, i64 %si
  %sp = load i64, ptr %sp.p
  %ss.p = getelementptr i64, ptr %strides, i64 %si
  %ss = load i64, ptr %ss.p
  %so = mul i64 %ss, %col
  %sa = add i64 %sp, %so
  %sa.p = getelementptr i64, ptr %at, i64 %si
  store i64 %sa, ptr %sa.p
  %si1 = add i64 %si, 1
  %s.more = icmp ult i64 %si1, %k
  br i1 %s.more, label %shift, label %work
work:
  call void %row(ptr %at, ptr %strides, i64 %n)
  %pos1 = add i64 %pos, %n
  %done = icmp uge i64 %pos1, %end
  br i1 %done, label %return, label %step

step:                                    ; to the next row, as an odometer turns
  %d = phi i64 [ %rank, %work ], [ %d1, %carry ]
  %d1 = sub i64 %d, 1
  %count.p = getelementptr i64, ptr %counter, i64 %d1
  %count = load i64, ptr %count.p
  %count1 = add i64 %count, 1
  %size.p = getelementptr i64, ptr %sizes, i64 %d1
  %size = load i64, ptr %size.p
  %fits = icmp ult i64 %count1, %size
  br i1 %fits, label %next, label %carry
next:
  store i64 %count1, ptr %count.p
  call void @advance(ptr %pointers, ptr %outer, i64 %d1, i64 %k, i64 1)
  br label %step.done
carry:
  store i64 0, ptr %count.p
  %back = sub i64 0, %count
  call void @advance(ptr %pointers, ptr %outer, i64 %d1, i64 %k, i64 %back)
  br label %step
step.done:
  br label %rows

return:
  ret void
}

; Every operand's pointer by `count` strides of outer dimension d.
define internal void @advance(ptr %pointers, ptr %outer, i64 %d, i64 %k, i64 %count) {
entry:
  %first = mul i64 %d, %k
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i1, %loop ]
  %o = add i64 %first, %i
  %s.p = getelementptr i64, ptr %outer, i64 %o
  %s = load i64, ptr %s.p
  %move = mul i64 %s, %count
  %p.p = getelementptr i64, ptr %pointers, i64 %i
  %p = load i64, ptr %p.p
  %p1 = add i64 %p, %move
  store i64 %p1, ptr %p.p
  %i1 = add i64 %i, 1
  %more = icmp ult i64 %i1, %k
  br i1 %more, label %loop, label %end
end:
  ret void
}
