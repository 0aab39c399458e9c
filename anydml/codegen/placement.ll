; Where workers wake up, on Linux: not where their caller runs, as it goes on there. The system does put them
; there while it takes a machine for busy, even if another processor is idle, and would move them too late.
;
; In a pool (forkjoin.ll):  34+8i thread id of worker i, 35+8i processor that it was last told to leave, from 1 on
;                           544..559 the processors that the process may use

declare i32 @sched_getcpu()
declare i32 @sched_setaffinity(i32, i64, ptr)
declare i64 @llvm.vector.reduce.or.v16i64(<16 x i64>)

define internal void @place(ptr %pool, i64 %w) {
entry:
  %set = alloca <16 x i64>
  %w8 = shl i64 %w, 3
  %word = add i64 %w8, 34
  %thread.p = getelementptr i64, ptr %pool, i64 %word
  %left.p = getelementptr i64, ptr %thread.p, i64 1
  %thread = load i64, ptr %thread.p
  %here = call i32 @sched_getcpu()
  %known = icmp ult i32 %here, 1024
  br i1 %known, label %compare, label %return
compare:
  %cpu = zext i32 %here to i64
  %cpu1 = add i64 %cpu, 1
  %left = load i64, ptr %left.p
  %same = icmp eq i64 %left, %cpu1
  br i1 %same, label %return, label %choose
choose:
  %all.p = getelementptr i64, ptr %pool, i64 544
  %all = load <16 x i64>, ptr %all.p, align 8
  %k = lshr i64 %cpu, 6
  %shift = and i64 %cpu, 63
  %bit = shl i64 1, %shift
  %others = xor i64 %bit, -1
  %some = extractelement <16 x i64> %all, i64 %k
  %rest = and i64 %some, %others
  %wanted = insertelement <16 x i64> %all, i64 %rest, i64 %k
  %any = call i64 @llvm.vector.reduce.or.v16i64(<16 x i64> %wanted)
  %none = icmp eq i64 %any, 0
  br i1 %none, label %return, label %tell
tell:
  store <16 x i64> %wanted, ptr %set
  %tid = trunc i64 %thread to i32
  %r = call i32 @sched_setaffinity(i32 %tid, i64 128, ptr %set)
  store i64 %cpu1, ptr %left.p
  br label %return
return:
  ret void
}
