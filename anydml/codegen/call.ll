; A call of an operator's function from Python, where one like it was before.
;
; What follows from the kinds of arguments is kept in records, which call.py writes: WORD(...) are numbers of
; its own, FIELD(...) places in launch descriptors. Arguments are compared with a record's, one after the
; other; what a list or a tuple holds is compared as if it were one more argument. Records are of two kinds. Those without
; launch descriptors are for packed arrays of one shape, of whatever sizes, and one output; those with some are
; for arrays of their layouts, and as many outputs as they say. Where all is as in a record the kernel runs;
; everything else goes the ordinary way, to a Python function, which is the first word of the context.

declare ptr @PyObject_Vectorcall(ptr, ptr, i64, ptr)
declare ptr @PyArray_NewFromDescr(ptr, ptr, i32, ptr, ptr, ptr, i32, ptr)
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
declare void @Py_IncRef(ptr)
declare void @Py_DecRef(ptr)
declare ptr @PyTuple_New(i64)
declare i32 @PyTuple_SetItem(ptr, i64, ptr)
declare void @PyErr_Clear()
declare void @anydml_run(ptr)
declare i64 @llvm.umax.i64(i64, i64)
declare i64 @llvm.umin.i64(i64, i64)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)

define ptr @anydml_call(ptr %self, ptr %args, i64 %n) {
entry:
  %descriptor = alloca [WORD(descriptor) x i64], align 64
  %scalars = alloca [WORD(arguments) x i64], align 64
  %layouts = alloca [WORD(arguments) x ptr], align 64
  %lists = alloca [WORD(arguments) x ptr], align 64
  %results = alloca [WORD(arguments) x ptr], align 64
  %objects = alloca [WORD(arguments) x ptr], align 64
  %moved.bases = alloca [WORD(arguments) x i64], align 64
  store ptr %args, ptr %lists
  %bases = getelementptr i64, ptr %descriptor, i64 FIELD(addresses)
  %context.p = getelementptr i8, ptr %self, i64 WORD(data)
  %context = load ptr, ptr %context.p
  %array.p = getelementptr ptr, ptr %context, i64 WORD(context.array)
  %array = load ptr, ptr %array.p
  %float.p = getelementptr ptr, ptr %context, i64 WORD(context.float)
  %float = load ptr, ptr %float.p
  %count.p = getelementptr i64, ptr %context, i64 WORD(context.count)
  %count = load i64, ptr %count.p
  %records = getelementptr ptr, ptr %context, i64 WORD(context.records)
  call void @add(ptr %context, i64 WORD(context.users), i64 1)
  br label %try

try:                                     ; the next one
  %r = phi i64 [ 0, %entry ], [ %r1, %differs ]
  %r1 = add i64 %r, 1
  %left = icmp ult i64 %r, %count
  br i1 %left, label %compare, label %miss
compare:
  %record.p = getelementptr ptr, ptr %records, i64 %r
  %record = load ptr, ptr %record.p
  %wants.p = getelementptr i64, ptr %record, i64 WORD(record.takes)
  %wants = load i64, ptr %wants.p
  %fits = icmp eq i64 %wants, %n
  %entries = call i64 @word(ptr %record, i64 WORD(record.entries))
  %kinds = getelementptr i64, ptr %record, i64 WORD(record.kinds)
  br i1 %fits, label %argument, label %differs
differs:
  br label %try

argument:                                ; argument i, as operand k; the first array has the shape of all
  %i = phi i64 [ 0, %compare ], [ %i1, %next ]
  %l = phi i64 [ 1, %compare ], [ %l1, %next ]
  %k = phi i64 [ 0, %compare ], [ %k1, %next ]
  %lead = phi ptr [ null, %compare ], [ %lead1, %next ]
  %out = phi ptr [ null, %compare ], [ %out1, %next ]
  %i1 = add i64 %i, 1
  %more = icmp ult i64 %i, %entries
  br i1 %more, label %look, label %matched
look:
  %words.0 = mul i64 %i, WORD(words)
  %kind.p = getelementptr i64, ptr %kinds, i64 %words.0
  %from = call i64 @word(ptr %kind.p, i64 3)
  %at = call i64 @word(ptr %kind.p, i64 4)
  %list.p = getelementptr ptr, ptr %lists, i64 %from
  %list = load ptr, ptr %list.p
  %x.p = getelementptr ptr, ptr %list, i64 %at
  %x = load ptr, ptr %x.p
  %type.p = getelementptr i8, ptr %x, i64 WORD(type)
  %type = load ptr, ptr %type.p
  %kind = load i64, ptr %kind.p
  %a.p = getelementptr i64, ptr %kind.p, i64 1
  %a = load ptr, ptr %a.p
  %b.p = getelementptr i64, ptr %kind.p, i64 2
  %b = load i64, ptr %b.p
  %base.p = getelementptr i64, ptr %bases, i64 %k
  %layout.p = getelementptr ptr, ptr %layouts, i64 %k
  store ptr null, ptr %layout.p
  %object.p = getelementptr ptr, ptr %objects, i64 %k
  store ptr %x, ptr %object.p
  switch i64 %kind, label %miss [
    i64 WORD(OBJECT), label %object
    i64 WORD(FLOAT), label %number
    i64 WORD(ARRAY), label %tensor
    i64 WORD(OUT), label %tensor
    i64 WORD(LAYOUT), label %laid
    i64 WORD(LAYOUT_OUT), label %laid
    i64 WORD(FLOAT32), label %single
    i64 WORD(FLOAT64), label %double
    i64 WORD(SCALAR), label %scalar
    i64 WORD(CONSTANT), label %constant
    i64 WORD(LIST), label %many
    i64 WORD(TUPLE), label %many
    i64 WORD(INTEGER), label %integer
  ]
integer:                                 ; an integer of one digit, and its sign
  %w.int = icmp eq ptr %type, %a
  br i1 %w.int, label %integer.digit, label %differs
integer.digit:
  %w.sign.p = getelementptr i8, ptr %x, i64 WORD(data)
  %w.sign = load i32, ptr %w.sign.p
  %w.digit.p = getelementptr i8, ptr %x, i64 WORD(digit)
  %w.digit = load i32, ptr %w.digit.p
  %w.high = zext i32 %w.sign to i64
  %w.low = zext i32 %w.digit to i64
  %w.shifted = shl i64 %w.high, 32
  %w.bits = or i64 %w.shifted, %w.low
  %w.same = icmp eq i64 %w.bits, %b
  br i1 %w.same, label %next, label %differs
many:                                    ; a list or tuple of so many objects, which are compared next
  %m.list = icmp eq ptr %type, %a
  br i1 %m.list, label %many.size, label %differs
many.size:
  %m.size.p = getelementptr i8, ptr %x, i64 WORD(data)
  %m.size = load i64, ptr %m.size.p
  %m.same = icmp eq i64 %m.size, %b
  br i1 %m.same, label %many.take, label %differs
many.take:                               ; of a tuple, another word is read in vain: it may be an empty one
  %m.p = getelementptr ptr, ptr %lists, i64 %l
  %m.tuple = icmp eq i64 %kind, WORD(TUPLE)
  %m.inside = getelementptr i8, ptr %x, i64 WORD(tuple)
  %m.items.p = getelementptr i8, ptr %x, i64 WORD(items)
  %m.items.p1 = select i1 %m.tuple, ptr %m.p, ptr %m.items.p
  %m.outside = load ptr, ptr %m.items.p1
  %m.items = select i1 %m.tuple, ptr %m.inside, ptr %m.outside
  store ptr %m.items, ptr %m.p
  %l.new = add i64 %l, 1
  br label %next
object:                                  ; this object
  %o.same = icmp eq ptr %x, %a
  br i1 %o.same, label %next, label %differs
number:                                  ; a float of these bits
  %n.float = icmp eq ptr %type, %float
  br i1 %n.float, label %number.bits, label %differs
number.bits:
  %n.p = getelementptr i8, ptr %x, i64 WORD(value)
  %n.bits = load i64, ptr %n.p
  %n.wanted = ptrtoint ptr %a to i64
  %n.same = icmp eq i64 %n.bits, %n.wanted
  br i1 %n.same, label %next, label %differs
constant:                                ; this object, which stands for an operand that lies somewhere
  %c.same = icmp eq ptr %x, %a
  br i1 %c.same, label %constant.take, label %differs
constant.take:
  store i64 %b, ptr %base.p
  br label %operand
scalar:                                  ; a scalar of NumPy's of this type; b: where in the object it is
  %s.same = icmp eq ptr %type, %a
  br i1 %s.same, label %scalar.take, label %differs
scalar.take:
  %s.p = getelementptr i8, ptr %x, i64 %b
  %s.i = ptrtoint ptr %s.p to i64
  store i64 %s.i, ptr %base.p
  br label %operand
double:
  %d.float = icmp eq ptr %type, %float
  br i1 %d.float, label %double.take, label %differs
double.take:
  %d.p = getelementptr i8, ptr %x, i64 WORD(value)
  %d.i = ptrtoint ptr %d.p to i64
  store i64 %d.i, ptr %base.p
  br label %operand
single:                                  ; the ordinary way tells of numbers that float32 has not
  %f.float = icmp eq ptr %type, %float
  br i1 %f.float, label %single.round, label %differs
single.round:
  %f.p = getelementptr i8, ptr %x, i64 WORD(value)
  %f.d = load double, ptr %f.p
  %f.f = fptrunc double %f.d to float
  %f.bits = bitcast float %f.f to i32
  %f.abs = and i32 %f.bits, 2147483647
  %f.finite = icmp ult i32 %f.abs, 2139095040
  br i1 %f.finite, label %single.take, label %miss
single.take:
  %f.at = getelementptr i64, ptr %scalars, i64 %i
  store float %f.f, ptr %f.at
  %f.i = ptrtoint ptr %f.at to i64
  store i64 %f.i, ptr %base.p
  br label %operand

tensor:                                  ; an array of this type, packed, of the shape of the others
  %t.array = icmp eq ptr %type, %array
  br i1 %t.array, label %tensor.type, label %differs
tensor.type:
  %t.dtype.p = getelementptr i8, ptr %x, i64 WORD(dtype)
  %t.dtype = load ptr, ptr %t.dtype.p
  %t.same = icmp eq ptr %t.dtype, %a
  br i1 %t.same, label %tensor.flags, label %differs
tensor.flags:
  %t.flags.p = getelementptr i8, ptr %x, i64 WORD(flags)
  %t.flags = load i32, ptr %t.flags.p
  %t.wanted = trunc i64 %b to i32
  %t.has = and i32 %t.flags, %t.wanted
  %t.good = icmp eq i32 %t.has, %t.wanted
  br i1 %t.good, label %tensor.take, label %miss
tensor.take:
  %t.data.p = getelementptr i8, ptr %x, i64 WORD(data)
  %t.data = load i64, ptr %t.data.p
  store i64 %t.data, ptr %base.p
  %t.is.out = icmp eq i64 %kind, WORD(OUT)
  %t.out = select i1 %t.is.out, ptr %x, ptr %out
  %t.first = icmp eq ptr %lead, null
  br i1 %t.first, label %operand, label %tensor.rank
tensor.rank:
  %t.rank.p = getelementptr i8, ptr %x, i64 WORD(rank)
  %t.rank = load i32, ptr %t.rank.p
  %t.lead.p = getelementptr i8, ptr %lead, i64 WORD(rank)
  %t.lead = load i32, ptr %t.lead.p
  %t.ranks = icmp eq i32 %t.rank, %t.lead
  br i1 %t.ranks, label %tensor.sizes, label %miss
tensor.sizes:
  %t.sizes.p = getelementptr i8, ptr %x, i64 WORD(sizes)
  %t.sizes = load ptr, ptr %t.sizes.p
  %t.lsizes.p = getelementptr i8, ptr %lead, i64 WORD(sizes)
  %t.lsizes = load ptr, ptr %t.lsizes.p
  br label %tensor.size
tensor.size:
  %t.d = phi i32 [ 0, %tensor.sizes ], [ %t.d1, %tensor.equal ]
  %t.d1 = add i32 %t.d, 1
  %t.any = icmp slt i32 %t.d, %t.rank
  br i1 %t.any, label %tensor.equal, label %operand
tensor.equal:
  %t.mine.p = getelementptr i64, ptr %t.sizes, i32 %t.d
  %t.mine = load i64, ptr %t.mine.p
  %t.its.p = getelementptr i64, ptr %t.lsizes, i32 %t.d
  %t.its = load i64, ptr %t.its.p
  %t.equal = icmp eq i64 %t.mine, %t.its
  br i1 %t.equal, label %tensor.size, label %miss

laid:                                    ; an array of this type and layout
  %l.array = icmp eq ptr %type, %array
  br i1 %l.array, label %laid.type, label %differs
laid.type:
  %l.layout = inttoptr i64 %b to ptr
  %l.dtype.p = getelementptr i8, ptr %x, i64 WORD(dtype)
  %l.dtype = load ptr, ptr %l.dtype.p
  %l.same = icmp eq ptr %l.dtype, %a
  %l.wrank.p = getelementptr i64, ptr %l.layout, i64 WORD(layout.rank)
  %l.wrank = load i64, ptr %l.wrank.p
  %l.rank.p = getelementptr i8, ptr %x, i64 WORD(rank)
  %l.rank.0 = load i32, ptr %l.rank.p
  %l.rank = zext i32 %l.rank.0 to i64
  %l.ranks = icmp eq i64 %l.rank, %l.wrank
  %l.both = and i1 %l.same, %l.ranks
  br i1 %l.both, label %laid.flags, label %differs
laid.flags:
  %l.wflags.p = getelementptr i64, ptr %l.layout, i64 WORD(layout.flags)
  %l.wflags.0 = load i64, ptr %l.wflags.p
  %l.wflags = trunc i64 %l.wflags.0 to i32
  %l.flags.p = getelementptr i8, ptr %x, i64 WORD(flags)
  %l.flags = load i32, ptr %l.flags.p
  %l.has = and i32 %l.flags, %l.wflags
  %l.good = icmp eq i32 %l.has, %l.wflags
  br i1 %l.good, label %laid.sizes, label %miss
laid.sizes:
  %l.sizes.p = getelementptr i8, ptr %x, i64 WORD(sizes)
  %l.sizes = load ptr, ptr %l.sizes.p
  %l.strides.p = getelementptr i8, ptr %x, i64 WORD(strides)
  %l.strides = load ptr, ptr %l.strides.p
  %l.wsizes = getelementptr i64, ptr %l.layout, i64 WORD(layout.sizes)
  %l.wstrides = getelementptr i64, ptr %l.wsizes, i64 %l.rank
  br label %laid.size
laid.size:
  %l.d = phi i64 [ 0, %laid.sizes ], [ %l.d1, %laid.equal ]
  %l.d1 = add i64 %l.d, 1
  %l.any = icmp ult i64 %l.d, %l.rank
  br i1 %l.any, label %laid.equal, label %laid.take
laid.equal:
  %l.n.p = getelementptr i64, ptr %l.sizes, i64 %l.d
  %l.n = load i64, ptr %l.n.p
  %l.wn.p = getelementptr i64, ptr %l.wsizes, i64 %l.d
  %l.wn = load i64, ptr %l.wn.p
  %l.s.p = getelementptr i64, ptr %l.strides, i64 %l.d
  %l.s = load i64, ptr %l.s.p
  %l.ws.p = getelementptr i64, ptr %l.wstrides, i64 %l.d
  %l.ws = load i64, ptr %l.ws.p
  %l.n.same = icmp eq i64 %l.n, %l.wn
  %l.s.same = icmp eq i64 %l.s, %l.ws
  %l.equal = and i1 %l.n.same, %l.s.same
  br i1 %l.equal, label %laid.size, label %differs
laid.take:
  store ptr %l.layout, ptr %layout.p
  %l.data.p = getelementptr i8, ptr %x, i64 WORD(data)
  %l.data = load i64, ptr %l.data.p
  store i64 %l.data, ptr %base.p
  %l.is.out = icmp eq i64 %kind, WORD(LAYOUT_OUT)
  %l.out = select i1 %l.is.out, ptr %x, ptr %out
  br label %operand

operand:
  %lead.new = phi ptr [ %lead, %laid.take ], [ %lead, %constant.take ], [ %lead, %scalar.take ], [ %lead, %double.take ], [ %lead, %single.take ], [ %x, %tensor.take ], [ %lead, %tensor.size ]
  %out.new = phi ptr [ %l.out, %laid.take ], [ %out, %constant.take ], [ %out, %scalar.take ], [ %out, %double.take ], [ %out, %single.take ], [ %t.out, %tensor.take ], [ %t.out, %tensor.size ]
  %k.new = add i64 %k, 1
  br label %next
next:
  %k1 = phi i64 [ %k, %object ], [ %k, %number.bits ], [ %k, %integer.digit ], [ %k, %many.take ], [ %k.new, %operand ]
  %l1 = phi i64 [ %l, %object ], [ %l, %number.bits ], [ %l, %integer.digit ], [ %l.new, %many.take ], [ %l, %operand ]
  %lead1 = phi ptr [ %lead, %object ], [ %lead, %number.bits ], [ %lead, %integer.digit ], [ %lead, %many.take ], [ %lead.new, %operand ]
  %out1 = phi ptr [ %out, %object ], [ %out, %number.bits ], [ %out, %integer.digit ], [ %out, %many.take ], [ %out.new, %operand ]
  br label %argument

matched:
  call void @add(ptr %record, i64 WORD(record.hits), i64 1)
  %template.p = getelementptr ptr, ptr %record, i64 WORD(record.descriptor)
  %template = load ptr, ptr %template.p
  %laid.out = icmp ne ptr %template, null
  br i1 %laid.out, label %exact, label %packed

packed:                                  ; how many elements
  %rank.p = getelementptr i8, ptr %lead, i64 WORD(rank)
  %rank = load i32, ptr %rank.p
  %sizes.p = getelementptr i8, ptr %lead, i64 WORD(sizes)
  %sizes = load ptr, ptr %sizes.p
  %strides = getelementptr i64, ptr %record, i64 WORD(record.strides)
  %operands.p = getelementptr i64, ptr %record, i64 WORD(record.operands)
  %operands = load i64, ptr %operands.p
  %last = sub i64 %operands, 1
  %kernel.p = getelementptr ptr, ptr %record, i64 WORD(record.kernel)
  %kernel = load ptr, ptr %kernel.p
  %width.p = getelementptr i64, ptr %record, i64 WORD(record.width)
  %width = load i64, ptr %width.p
  br label %size
size:
  %d = phi i32 [ 0, %packed ], [ %d1, %size.next ]
  %elements = phi i64 [ 1, %packed ], [ %product, %size.next ]
  %d.more = icmp slt i32 %d, %rank
  br i1 %d.more, label %size.next, label %counted
size.next:
  %d1 = add i32 %d, 1
  %size.p = getelementptr i64, ptr %sizes, i32 %d
  %size.d = load i64, ptr %size.p
  %product = mul i64 %elements, %size.d
  br label %size
counted:
  %moved = mul i64 %elements, %width
  %none = icmp eq i64 %elements, 0
  %huge = icmp uge i64 %moved, WORD(most)
  %odd = or i1 %none, %huge
  br i1 %odd, label %miss, label %target

target:
  %given = icmp ne ptr %out, null
  br i1 %given, label %apart, label %make
apart:                                   ; an output is exactly an input with elements as large, or apart from it
  %y.p = getelementptr i64, ptr %bases, i64 %last
  %y = load i64, ptr %y.p
  %y.stride.p = getelementptr i64, ptr %strides, i64 %last
  %y.stride = load i64, ptr %y.stride.p
  %y.bytes = mul i64 %y.stride, %elements
  %y.end = add i64 %y, %y.bytes
  br label %one
one:
  %p = phi i64 [ 0, %apart ], [ %p1, %one.good ]
  %p.more = icmp ult i64 %p, %last
  br i1 %p.more, label %one.look, label %ready
one.look:
  %p1 = add i64 %p, 1
  %in.p = getelementptr i64, ptr %bases, i64 %p
  %in = load i64, ptr %in.p
  %in.stride.p = getelementptr i64, ptr %strides, i64 %p
  %in.stride = load i64, ptr %in.stride.p
  %in.bytes = mul i64 %in.stride, %elements
  %in.end = add i64 %in, %in.bytes
  %in.before = icmp ule i64 %in.end, %y
  %in.behind = icmp ule i64 %y.end, %in
  %in.there = icmp eq i64 %in, %y
  %in.alike = icmp eq i64 %in.stride, %y.stride
  %in.same = and i1 %in.there, %in.alike
  %in.apart = or i1 %in.before, %in.behind
  %in.splat = icmp eq i64 %in.stride, 0
  %in.good.0 = or i1 %in.apart, %in.same
  %in.good = or i1 %in.good.0, %in.splat
  br i1 %in.good, label %one.good, label %miss
one.good:
  br label %one

make:
  %dtype.p = getelementptr ptr, ptr %record, i64 WORD(record.result)
  %dtype = load ptr, ptr %dtype.p
  call void @Py_IncRef(ptr %dtype)
  %new = call ptr @PyArray_NewFromDescr(ptr %array, ptr %dtype, i32 %rank, ptr %sizes, ptr null, ptr null, i32 0, ptr null)
  %failed = icmp eq ptr %new, null
  br i1 %failed, label %error, label %made
error:                                   ; the ordinary way tells of it
  call void @PyErr_Clear()
  br label %miss
made:
  %new.data.p = getelementptr i8, ptr %new, i64 WORD(data)
  %new.data = load i64, ptr %new.data.p
  %new.p = getelementptr i64, ptr %bases, i64 %last
  store i64 %new.data, ptr %new.p
  br label %run
ready:
  call void @Py_IncRef(ptr %out)
  br label %run

run:
  %result = phi ptr [ %new, %made ], [ %out, %ready ]
  %short = icmp ult i64 %moved, WORD(split)
  br i1 %short, label %near, label %far
near:
  call void %kernel(ptr %bases, ptr %strides, i64 %elements)
  call void @add(ptr %context, i64 WORD(context.users), i64 -1)
  ret ptr %result

far:                                     ; in chunks that other threads may take, and without Python's lock
  %threads.p = getelementptr ptr, ptr %context, i64 WORD(context.threads)
  %threads = load i64, ptr %threads.p
  %pool.p = getelementptr i64, ptr %context, i64 WORD(context.pool)
  %pool = load i64, ptr %pool.p
  %parts = shl i64 %threads, 2
  %fair = udiv i64 %elements, %parts
  %fair.1 = call i64 @llvm.umax.i64(i64 %fair, i64 WORD(least))
  %fair.2 = call i64 @llvm.umin.i64(i64 %fair.1, i64 WORD(chunk))
  %fair.3 = add i64 %fair.2, WORD(least)
  %fair.4 = sub i64 %fair.3, 1
  %fair.5 = udiv i64 %fair.4, WORD(least)
  %fair.6 = mul i64 %fair.5, WORD(least)
  %alone = icmp ule i64 %threads, 1
  %chunk = select i1 %alone, i64 %elements, i64 %fair.6
  %whole = add i64 %elements, %chunk
  %whole.1 = sub i64 %whole, 1
  %chunks = udiv i64 %whole.1, %chunk
  %perhaps = icmp uge i64 %moved, WORD(perhaps)
  %surely = icmp uge i64 %moved, WORD(wake)
  %wake.0 = zext i1 %perhaps to i64
  %wake = select i1 %surely, i64 2, i64 %wake.0
  %kernel.i = ptrtoint ptr %kernel to i64
  call void @set(ptr %descriptor, i64 FIELD(chunks), i64 %chunks)
  call void @set(ptr %descriptor, i64 FIELD(chunk), i64 %chunk)
  call void @set(ptr %descriptor, i64 FIELD(elements), i64 %elements)
  call void @set(ptr %descriptor, i64 FIELD(inner), i64 %elements)
  call void @set(ptr %descriptor, i64 FIELD(rank), i64 0)
  call void @set(ptr %descriptor, i64 FIELD(operands), i64 %operands)
  call void @set(ptr %descriptor, i64 FIELD(kernel), i64 %kernel.i)
  call void @set(ptr %descriptor, i64 FIELD(pool), i64 %pool)
  call void @set(ptr %descriptor, i64 FIELD(wake), i64 %wake)
  %steps = getelementptr i64, ptr %bases, i64 %operands
  %step.bytes = mul i64 %operands, 8
  call void @llvm.memcpy.p0.p0.i64(ptr %steps, ptr %strides, i64 %step.bytes, i1 false)
  %state = call ptr @PyEval_SaveThread()
  call void @anydml_run(ptr %descriptor)
  call void @PyEval_RestoreThread(ptr %state)
  call void @add(ptr %context, i64 WORD(context.users), i64 -1)
  ret ptr %result

exact:                                   ; operands as in the record, with its launch descriptors
  %e.busy.p = getelementptr i64, ptr %record, i64 WORD(record.busy)
  %e.busy = load i64, ptr %e.busy.p
  %e.free = icmp eq i64 %e.busy, 0
  br i1 %e.free, label %e.begin, label %miss
e.begin:
  %e.last = call i64 @word(ptr %record, i64 WORD(record.operands))
  %e.outputs = call i64 @word(ptr %record, i64 WORD(record.outputs))
  %e.targets.p = getelementptr ptr, ptr %record, i64 WORD(record.targets)
  %e.targets = load ptr, ptr %e.targets.p
  %e.target = load ptr, ptr %e.targets
  %e.given = icmp ne ptr %out, null
  br i1 %e.given, label %e.apart, label %e.hold
e.apart:                                 ; in place where the record says so, or apart
  %e.out.p = getelementptr i64, ptr %bases, i64 %e.last
  %e.y = load i64, ptr %e.out.p
  %e.first = call i64 @word(ptr %e.target, i64 WORD(layout.first))
  %e.end = call i64 @word(ptr %e.target, i64 WORD(layout.end))
  %e.y0 = add i64 %e.y, %e.first
  %e.y1 = add i64 %e.y, %e.end
  br label %e.one
e.one:
  %e.p = phi i64 [ 0, %e.apart ], [ %e.p1, %e.one.good ]
  %e.p.more = icmp ult i64 %e.p, %e.last
  br i1 %e.p.more, label %e.look, label %e.hold
e.look:
  %e.p1 = add i64 %e.p, 1
  %e.layout.p = getelementptr ptr, ptr %layouts, i64 %e.p
  %e.layout = load ptr, ptr %e.layout.p
  %e.number = icmp eq ptr %e.layout, null
  br i1 %e.number, label %e.one.good, label %e.compare
e.compare:
  %e.x.p = getelementptr i64, ptr %bases, i64 %e.p
  %e.x = load i64, ptr %e.x.p
  %e.x.first = call i64 @word(ptr %e.layout, i64 WORD(layout.first))
  %e.x.end = call i64 @word(ptr %e.layout, i64 WORD(layout.end))
  %e.x.same = call i64 @word(ptr %e.layout, i64 WORD(layout.same))
  %e.x0 = add i64 %e.x, %e.x.first
  %e.x1 = add i64 %e.x, %e.x.end
  %e.before = icmp ule i64 %e.x1, %e.y0
  %e.behind = icmp ule i64 %e.y1, %e.x0
  %e.there = icmp eq i64 %e.x, %e.y
  %e.alike = icmp ne i64 %e.x.same, 0
  %e.same = and i1 %e.there, %e.alike
  %e.good.0 = or i1 %e.before, %e.behind
  %e.good = or i1 %e.good.0, %e.same
  br i1 %e.good, label %e.one.good, label %miss
e.one.good:
  br label %e.one
e.hold:                                  ; whoever has the lists may change them meanwhile
  call void @hold(ptr %objects, i64 %e.last)
  br i1 %e.given, label %e.ready, label %e.make
e.make:                                  ; the outputs, of which the record has layouts, types, and strides that are
                                         ; not those of C's order
  %e.o = phi i64 [ 0, %e.hold ], [ %e.o1, %e.made ]
  %e.o1 = add i64 %e.o, 1
  %e.o3 = mul i64 %e.o, 3
  %e.layout.o.p = getelementptr ptr, ptr %e.targets, i64 %e.o3
  %e.layout.o = load ptr, ptr %e.layout.o.p
  %e.dtype.p = getelementptr ptr, ptr %e.layout.o.p, i64 1
  %e.dtype = load ptr, ptr %e.dtype.p
  %e.strides.p = getelementptr ptr, ptr %e.layout.o.p, i64 2
  %e.strides = load ptr, ptr %e.strides.p
  %e.rank = call i64 @word(ptr %e.layout.o, i64 WORD(layout.rank))
  %e.rank.i = trunc i64 %e.rank to i32
  %e.sizes = getelementptr i64, ptr %e.layout.o, i64 WORD(layout.sizes)
  call void @Py_IncRef(ptr %e.dtype)
  %e.new = call ptr @PyArray_NewFromDescr(ptr %array, ptr %e.dtype, i32 %e.rank.i, ptr %e.sizes, ptr %e.strides, ptr null, i32 0, ptr null)
  %e.failed = icmp eq ptr %e.new, null
  br i1 %e.failed, label %e.error, label %e.made
e.made:
  %e.new.p = getelementptr ptr, ptr %results, i64 %e.o
  store ptr %e.new, ptr %e.new.p
  %e.new.data.p = getelementptr i8, ptr %e.new, i64 WORD(data)
  %e.new.data = load i64, ptr %e.new.data.p
  %e.base = add i64 %e.last, %e.o
  %e.base.p = getelementptr i64, ptr %bases, i64 %e.base
  store i64 %e.new.data, ptr %e.base.p
  %e.o.more = icmp ult i64 %e.o1, %e.outputs
  br i1 %e.o.more, label %e.make, label %e.run
e.error:                                 ; those that were made go; the ordinary way tells of it
  call void @release(ptr %results, i64 %e.o)
  call void @release(ptr %objects, i64 %e.last)
  br label %error
e.ready:
  call void @Py_IncRef(ptr %out)
  store ptr %out, ptr %results
  br label %e.run
e.run:                                   ; one descriptor after the other; addresses are seen from where arrays begin
  %e.bases = add i64 %e.last, %e.outputs
  %e.bases.bytes = mul i64 %e.bases, 8
  call void @llvm.memcpy.p0.p0.i64(ptr %moved.bases, ptr %bases, i64 %e.bases.bytes, i1 false)
  %e.count = call i64 @word(ptr %record, i64 WORD(record.launches))
  %e.alone = call i64 @word(ptr %record, i64 WORD(record.exclusive))
  store i64 %e.alone, ptr %e.busy.p
  %e.long = call i64 @word(ptr %record, i64 WORD(record.width))
  %e.near = icmp ult i64 %e.long, WORD(split)
  br i1 %e.near, label %e.each, label %e.leave
e.leave:
  %e.thread = call ptr @PyEval_SaveThread()
  br label %e.each
e.each:
  %e.j = phi i64 [ 0, %e.run ], [ 0, %e.leave ], [ %e.j1, %e.start ]
  %e.state = phi ptr [ null, %e.run ], [ %e.thread, %e.leave ], [ %e.state, %e.start ]
  %e.j1 = add i64 %e.j, 1
  %e.j3 = mul i64 %e.j, 3
  %e.step = getelementptr i64, ptr %template, i64 %e.j3
  %e.source = load ptr, ptr %e.step
  %e.words = call i64 @word(ptr %e.step, i64 1)
  %e.places.p = getelementptr i64, ptr %e.step, i64 2
  %e.places = load ptr, ptr %e.places.p
  %e.bytes = mul i64 %e.words, 8
  call void @llvm.memcpy.p0.p0.i64(ptr %descriptor, ptr %e.source, i64 %e.bytes, i1 false)
  %e.addresses = call i64 @word(ptr %e.source, i64 FIELD(operands))
  br label %e.shift
e.shift:                                 ; -1: an address that is always the same
  %e.q = phi i64 [ 0, %e.each ], [ %e.q1, %e.shifted ]
  %e.q1 = add i64 %e.q, 1
  %e.place = call i64 @word(ptr %e.places, i64 %e.q)
  %e.fixed = icmp slt i64 %e.place, 0
  br i1 %e.fixed, label %e.shifted, label %e.add
e.add:
  %e.origin = call i64 @word(ptr %moved.bases, i64 %e.place)
  %e.at.p = getelementptr i64, ptr %bases, i64 %e.q
  %e.offset = load i64, ptr %e.at.p
  %e.at = add i64 %e.origin, %e.offset
  store i64 %e.at, ptr %e.at.p
  br label %e.shifted
e.shifted:
  %e.q.more = icmp ult i64 %e.q1, %e.addresses
  br i1 %e.q.more, label %e.shift, label %e.start
e.start:
  call void @anydml_run(ptr %descriptor)
  %e.j.more = icmp ult i64 %e.j1, %e.count
  br i1 %e.j.more, label %e.each, label %e.over
e.over:
  br i1 %e.near, label %e.done, label %e.enter
e.enter:
  call void @PyEval_RestoreThread(ptr %e.state)
  br label %e.done
e.done:
  store i64 0, ptr %e.busy.p
  call void @release(ptr %objects, i64 %e.last)
  call void @add(ptr %context, i64 WORD(context.users), i64 -1)
  %e.result = load ptr, ptr %results
  %e.several = icmp ugt i64 %e.outputs, 1
  br i1 %e.several, label %e.tuple, label %e.one.result
e.one.result:
  ret ptr %e.result
e.tuple:
  %e.all = call ptr @PyTuple_New(i64 %e.outputs)
  %e.none = icmp eq ptr %e.all, null
  br i1 %e.none, label %e.lost, label %e.put
e.put:
  %e.t = phi i64 [ 0, %e.tuple ], [ %e.t1, %e.put ]
  %e.t1 = add i64 %e.t, 1
  %e.item.p = getelementptr ptr, ptr %results, i64 %e.t
  %e.item = load ptr, ptr %e.item.p
  %e.set = call i32 @PyTuple_SetItem(ptr %e.all, i64 %e.t, ptr %e.item)
  %e.t.more = icmp ult i64 %e.t1, %e.outputs
  br i1 %e.t.more, label %e.put, label %e.told
e.told:
  ret ptr %e.all
e.lost:                                  ; no memory for a tuple: all go, and the error stays
  call void @release(ptr %results, i64 %e.outputs)
  ret ptr null

miss:                                    ; what is slow may forget records
  call void @add(ptr %context, i64 WORD(context.users), i64 -1)
  %slow = load ptr, ptr %context
  %slowly = call ptr @PyObject_Vectorcall(ptr %slow, ptr %args, i64 %n, ptr null)
  ret ptr %slowly
}

; Launch descriptors whose operands are bound: all of them, one after the other. It takes no arguments, of which
; the Python function tells.
define ptr @anydml_dispatch(ptr %self, ptr %args, i64 %n) {
entry:
  %context.p = getelementptr i8, ptr %self, i64 WORD(data)
  %context = load ptr, ptr %context.p
  %right = icmp eq i64 %n, 0
  br i1 %right, label %begin, label %odd
odd:
  %slow = load ptr, ptr %context
  %told = call ptr @PyObject_Vectorcall(ptr %slow, ptr %args, i64 %n, ptr null)
  ret ptr %told
begin:
  %count = call i64 @word(ptr %context, i64 WORD(bound.count))
  %long = call i64 @word(ptr %context, i64 WORD(bound.long))
  %none.p = getelementptr ptr, ptr %context, i64 WORD(bound.none)
  %none = load ptr, ptr %none.p
  %descriptors = getelementptr ptr, ptr %context, i64 WORD(bound.descriptors)
  %near = icmp eq i64 %long, 0
  br i1 %near, label %run, label %leave
leave:
  %thread = call ptr @PyEval_SaveThread()
  br label %run
run:
  %state = phi ptr [ null, %begin ], [ %thread, %leave ], [ %state, %run ]
  %k = phi i64 [ 0, %begin ], [ 0, %leave ], [ %k1, %run ]
  %one.p = getelementptr ptr, ptr %descriptors, i64 %k
  %one = load ptr, ptr %one.p
  call void @anydml_run(ptr %one)
  %k1 = add i64 %k, 1
  %more = icmp ult i64 %k1, %count
  br i1 %more, label %run, label %end
end:
  br i1 %near, label %done, label %enter
enter:
  call void @PyEval_RestoreThread(ptr %state)
  br label %done
done:
  call void @Py_IncRef(ptr %none)
  ret ptr %none
}

define internal void @hold(ptr %objects, i64 %n) {
entry:
  br label %next
next:
  %k = phi i64 [ 0, %entry ], [ %k1, %one ]
  %k1 = add i64 %k, 1
  %more = icmp ult i64 %k, %n
  br i1 %more, label %one, label %end
one:
  %x.p = getelementptr ptr, ptr %objects, i64 %k
  %x = load ptr, ptr %x.p
  call void @Py_IncRef(ptr %x)
  br label %next
end:
  ret void
}

define internal void @release(ptr %objects, i64 %n) {
entry:
  br label %next
next:
  %k = phi i64 [ 0, %entry ], [ %k1, %one ]
  %k1 = add i64 %k, 1
  %more = icmp ult i64 %k, %n
  br i1 %more, label %one, label %end
one:
  %x.p = getelementptr ptr, ptr %objects, i64 %k
  %x = load ptr, ptr %x.p
  call void @Py_DecRef(ptr %x)
  br label %next
end:
  ret void
}

define internal i64 @word(ptr %words, i64 %place) {
  %at = getelementptr i64, ptr %words, i64 %place
  %value = load i64, ptr %at
  ret i64 %value
}

define internal void @add(ptr %words, i64 %place, i64 %more) {
  %at = getelementptr i64, ptr %words, i64 %place
  %old = load i64, ptr %at
  %new = add i64 %old, %more
  store i64 %new, ptr %at
  ret void
}

define internal void @set(ptr %words, i64 %place, i64 %value) {
  %at = getelementptr i64, ptr %words, i64 %place
  store i64 %value, ptr %at
  ret void
}
