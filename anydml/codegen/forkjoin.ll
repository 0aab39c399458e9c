; The fork-join that shares a launch descriptor's chunks between the caller and worker threads (descriptor.py).
;
; A pool is shared memory of 64-bit words, one cache line (8 words) for each thing that changes:
;
;    0 busy        1 descriptor 2 workers     3 stop        4 lock that the caller sleeps on
;    5 calls until workers are woken again, for work that may pay     6 and after that
;    8 ticket: generation << 32 | first << 16 | end         the chunks [first, end) nobody has taken
;   16 pending: chunks not finished
;   24 state: 0 running, 1 the caller sleeps, 2 finished
;   32+8i parked (0 or 1), 33+8i lock of worker i      more of it: placement.ll
;
; Chunks are claimed by compare-and-swap on the ticket, the caller from the front and workers from the
; end, so that each keeps to its own part of the memory from one dispatch to the next. The generation
; makes a late worker's claim fail: it can only take chunks of the descriptor whose pointer it has read.

declare i32 @anydml_acquire(ptr, i32)
declare void @anydml_release(ptr)
declare void @anydml_drive(ptr, i64)
declare i64 @llvm.umax.i64(i64, i64)
declare i64 @llvm.umin.i64(i64, i64)
declare i64 @llvm.readcyclecounter()

define internal void @pause() {
  call void asm sideeffect "PAUSE_INSTRUCTION", ""()
  ret void
}

; Take chunks, so many at most, and work on them until none is left. `step` is 65536 from the front, -1 from the end.
define internal void @claim(ptr %pool, i64 %step, i64 %most) {
entry:
  %ticket.p = getelementptr i64, ptr %pool, i64 8
  %descriptor.p = getelementptr i64, ptr %pool, i64 1
  %front = icmp sgt i64 %step, 0
  br label %look
look:
  %done = phi i64 [ 0, %entry ], [ %done, %take ], [ %done1, %next ]
  %t = load atomic i64, ptr %ticket.p seq_cst, align 8
  %end = and i64 %t, 65535
  %t.f = lshr i64 %t, 16
  %first = and i64 %t.f, 65535
  %none = icmp eq i64 %first, %end
  br i1 %none, label %return, label %take
take:
  %descriptor = load atomic ptr, ptr %descriptor.p seq_cst, align 8
  %t1 = add i64 %t, %step
  %swap = cmpxchg ptr %ticket.p, i64 %t, i64 %t1 seq_cst seq_cst
  %mine = extractvalue { i64, i1 } %swap, 1
  br i1 %mine, label %work, label %look
work:
  %last = sub i64 %end, 1
  %index = select i1 %front, i64 %first, i64 %last
  call void @anydml_drive(ptr %descriptor, i64 %index)
  %done1 = add i64 %done, 1
  %pending.p = getelementptr i64, ptr %pool, i64 16
  %was = atomicrmw sub ptr %pending.p, i64 1 seq_cst
  %final = icmp eq i64 %was, 1
  br i1 %final, label %finish, label %next
finish:                                  ; after this exchange the caller may start another launch
  %state.p = getelementptr i64, ptr %pool, i64 24
  %lock.p = getelementptr i64, ptr %pool, i64 4
  %lock = load ptr, ptr %lock.p
  %before = atomicrmw xchg ptr %state.p, i64 2 seq_cst
  %asleep = icmp eq i64 %before, 1
  br i1 %asleep, label %rouse, label %next
rouse:
  call void @anydml_release(ptr %lock)
  br label %next
next:
  %enough = icmp uge i64 %done1, %most
  br i1 %enough, label %return, label %look
return:
  ret void
}

; Wake all workers that sleep.
define internal void @rouse_all(ptr %pool, i64 %workers) {
entry:
  br label %loop
loop:
  %w = phi i64 [ 0, %entry ], [ %w1, %loop ]
  call void @rouse(ptr %pool, i64 %w)
  %w1 = add i64 %w, 1
  %more = icmp ult i64 %w1, %workers
  br i1 %more, label %loop, label %return
return:
  ret void
}

; Run a descriptor: alone if it has one chunk, or if the pool has no worker or another caller. Workers that are
; awake join. Those that sleep take 20 to 50 us to come: for very large work they are woken at once, else when the
; first chunk has shown that the rest will take the caller much longer than that. Smaller work wakes them once in a
; while, ever more rarely if they sleep again by the next call: where calls come quickly they are awake then.
define void @anydml_run(ptr %descriptor) {
entry:
  %chunks = load i64, ptr %descriptor
  %single = icmp ule i64 %chunks, 1
  br i1 %single, label %one, label %many
one:
  call void @anydml_drive(ptr %descriptor, i64 0)
  ret void
many:
  %pool.p = getelementptr i64, ptr %descriptor, i64 FIELD(pool)
  %pool = load ptr, ptr %pool.p
  %alone = icmp eq ptr %pool, null
  br i1 %alone, label %serial, label %ask
ask:
  %workers.p = getelementptr i64, ptr %pool, i64 2
  %workers = load atomic i64, ptr %workers.p seq_cst, align 8
  %nobody = icmp eq i64 %workers, 0
  br i1 %nobody, label %serial, label %weigh
weigh:
  %large.p = getelementptr i64, ptr %descriptor, i64 FIELD(wake)
  %large = load i64, ptr %large.p
  %left.p = getelementptr i64, ptr %pool, i64 5
  %pause.p = getelementptr i64, ptr %pool, i64 6
  %pause = load atomic i64, ptr %pause.p monotonic, align 8
  %surely = icmp eq i64 %large, 2
  br i1 %surely, label %own, label %listen
listen:
  %parked.p = getelementptr i64, ptr %pool, i64 32
  %parked = load atomic i64, ptr %parked.p seq_cst, align 8
  %sleeps = icmp ne i64 %parked, 0
  br i1 %sleeps, label %asleep, label %awake
awake:
  %shorter = lshr i64 %pause, 1
  store atomic i64 %shorter, ptr %pause.p monotonic, align 8
  store atomic i64 %shorter, ptr %left.p monotonic, align 8
  br label %own
asleep:
  %never = icmp eq i64 %large, 0
  br i1 %never, label %serial, label %count
count:
  %left = load atomic i64, ptr %left.p monotonic, align 8
  %left1 = sub i64 %left, 1
  store atomic i64 %left1, ptr %left.p monotonic, align 8
  %later = icmp sgt i64 %left1, 0
  br i1 %later, label %own, label %now
now:
  %twice = shl i64 %pause, 1
  %least = call i64 @llvm.umax.i64(i64 %twice, i64 8)
  %longer = call i64 @llvm.umin.i64(i64 %least, i64 256)
  store atomic i64 %longer, ptr %pause.p monotonic, align 8
  store atomic i64 %longer, ptr %left.p monotonic, align 8
  br label %own
own:
  %rouses = phi i1 [ true, %weigh ], [ true, %awake ], [ true, %now ], [ false, %count ]
  %got = cmpxchg ptr %pool, i64 0, i64 1 seq_cst seq_cst
  %ours = extractvalue { i64, i1 } %got, 1
  br i1 %ours, label %publish, label %serial

serial:
  %i = phi i64 [ 0, %many ], [ 0, %ask ], [ 0, %asleep ], [ 0, %own ], [ %i1, %serial ]
  call void @anydml_drive(ptr %descriptor, i64 %i)
  %i1 = add i64 %i, 1
  %more = icmp ult i64 %i1, %chunks
  br i1 %more, label %serial, label %return

publish:
  %descriptor.p = getelementptr i64, ptr %pool, i64 1
  store atomic ptr %descriptor, ptr %descriptor.p seq_cst, align 8
  %pending.p = getelementptr i64, ptr %pool, i64 16
  store atomic i64 %chunks, ptr %pending.p seq_cst, align 8
  %state.p = getelementptr i64, ptr %pool, i64 24
  store atomic i64 0, ptr %state.p seq_cst, align 8
  %ticket.p = getelementptr i64, ptr %pool, i64 8
  %old = load atomic i64, ptr %ticket.p seq_cst, align 8
  %old.g = lshr i64 %old, 32
  %g = add i64 %old.g, 1
  %new.g = shl i64 %g, 32
  %new = or i64 %new.g, %chunks
  store atomic i64 %new, ptr %ticket.p seq_cst, align 8
  br i1 %rouses, label %waking, label %try
waking:
  %known = icmp ne i64 %large, 0
  br i1 %known, label %call, label %help
try:
  %start = CLOCK
  call void @claim(ptr %pool, i64 65536, i64 1)
  %now.t = CLOCK
  %each = sub i64 %now.t, %start
  %rest = sub i64 %chunks, 1
  %long = mul i64 %each, %rest
  %pays = icmp uge i64 %long, WORTH
  br i1 %pays, label %call, label %help
call:
  call void @rouse_all(ptr %pool, i64 %workers)
  br label %help
help:
  call void @claim(ptr %pool, i64 65536, i64 -1)
  br label %wait
wait:
  %spins = phi i64 [ 0, %help ], [ %spins1, %wait.on ]
  %state = load atomic i64, ptr %state.p seq_cst, align 8
  %finished = icmp eq i64 %state, 2
  br i1 %finished, label %leave, label %wait.on
wait.on:
  call void @pause()
  %spins1 = add i64 %spins, 1
  %patient = icmp ult i64 %spins1, SPINS
  br i1 %patient, label %wait, label %sleep
sleep:
  %seen = atomicrmw xchg ptr %state.p, i64 1 seq_cst
  %late = icmp eq i64 %seen, 2
  br i1 %late, label %leave, label %block
block:
  %lock.p = getelementptr i64, ptr %pool, i64 4
  %lock = load ptr, ptr %lock.p
  %r = call i32 @anydml_acquire(ptr %lock, i32 1)
  br label %leave
leave:
  store atomic i64 0, ptr %pool seq_cst, align 8
  br label %return
return:
  ret void
}

; The same for a descriptor whose first k bases are not addresses yet, but where the addresses stand: the data fields
; of the caller's array objects, which it holds. Saves it from asking each of them.
define void @anydml_run_arrays(ptr %descriptor, i64 %k) {
entry:
  %bases = getelementptr i64, ptr %descriptor, i64 FIELD(addresses)
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i1, %loop ]
  %base.p = getelementptr i64, ptr %bases, i64 %i
  %field = load ptr, ptr %base.p
  %address = load i64, ptr %field
  store i64 %address, ptr %base.p
  %i1 = add i64 %i, 1
  %more = icmp ult i64 %i1, %k
  br i1 %more, label %loop, label %run
run:
  call void @anydml_run(ptr %descriptor)
  ret void
}

; Wake worker w if it is parked; at most one caller's swap succeeds, and that one releases the lock.
define internal void @rouse(ptr %pool, i64 %w) {
entry:
  %w8 = shl i64 %w, 3
  %word = add i64 %w8, 32
  %parked.p = getelementptr i64, ptr %pool, i64 %word
  %swap = cmpxchg ptr %parked.p, i64 1, i64 0 seq_cst seq_cst
  %was = extractvalue { i64, i1 } %swap, 1
  br i1 %was, label %release, label %return
release:
  call void @place(ptr %pool, i64 %w)
  %lock.p = getelementptr i64, ptr %parked.p, i64 1
  %lock = load ptr, ptr %lock.p
  call void @anydml_release(ptr %lock)
  br label %return
return:
  ret void
}

; The life of worker w: claim, spin for a bounded while, sleep; until the pool stops.
define void @anydml_work(ptr %pool, i64 %w) {
entry:
  %ticket.p = getelementptr i64, ptr %pool, i64 8
  %stop.p = getelementptr i64, ptr %pool, i64 3
  %w8 = shl i64 %w, 3
  %word = add i64 %w8, 32
  %parked.p = getelementptr i64, ptr %pool, i64 %word
  %lock.p = getelementptr i64, ptr %parked.p, i64 1
  br label %work
work:
  call void @claim(ptr %pool, i64 -1, i64 -1)
  br label %spin
spin:
  %spins = phi i64 [ 0, %work ], [ %spins1, %spin.on ]
  %stop = load atomic i64, ptr %stop.p seq_cst, align 8
  %stopped = icmp ne i64 %stop, 0
  br i1 %stopped, label %return, label %look
look:
  %any = call i1 @offered(ptr %ticket.p)
  br i1 %any, label %work, label %spin.on
spin.on:
  call void @pause()
  %spins1 = add i64 %spins, 1
  %patient = icmp ult i64 %spins1, SPINS
  br i1 %patient, label %spin, label %park
park:
  %x = atomicrmw xchg ptr %parked.p, i64 1 seq_cst
  %any2 = call i1 @offered(ptr %ticket.p)
  %stop2 = load atomic i64, ptr %stop.p seq_cst, align 8
  %stopping = icmp ne i64 %stop2, 0
  %stay = or i1 %any2, %stopping
  br i1 %stay, label %unpark, label %block
unpark:                                  ; work came just now; if someone is waking us, let them finish
  %swap = cmpxchg ptr %parked.p, i64 1, i64 0 seq_cst seq_cst
  %awake = extractvalue { i64, i1 } %swap, 1
  br i1 %awake, label %work, label %block
block:
  %lock = load ptr, ptr %lock.p
  %r = call i32 @anydml_acquire(ptr %lock, i32 1)
  br label %work
return:
  ret void
}

define internal i1 @offered(ptr %ticket.p) {
  %t = load atomic i64, ptr %ticket.p seq_cst, align 8
  %end = and i64 %t, 65535
  %t.f = lshr i64 %t, 16
  %first = and i64 %t.f, 65535
  %any = icmp ne i64 %first, %end
  ret i1 %any
}

; Tell the workers to leave; whoever sleeps is woken.
define void @anydml_stop(ptr %pool) {
entry:
  %stop.p = getelementptr i64, ptr %pool, i64 3
  store atomic i64 1, ptr %stop.p seq_cst, align 8
  %workers.p = getelementptr i64, ptr %pool, i64 2
  %workers = load i64, ptr %workers.p
  br label %loop
loop:
  %w = phi i64 [ 0, %entry ], [ %w1, %body ]
  %more = icmp ult i64 %w, %workers
  br i1 %more, label %body, label %return
body:
  call void @rouse(ptr %pool, i64 %w)
  %w1 = add i64 %w, 1
  br label %loop
return:
  ret void
}
