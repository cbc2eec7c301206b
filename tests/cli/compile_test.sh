#!/bin/bash
# `weft compile`: what it writes gives the same results as the program, for one processor or several, on several devices; files
# that do not fit are refused by name; nothing is compiled on load.  Prints TAP.
weft=${WEFT_BUILDDIR:-.}/weft
dir=$(mktemp -d) || exit 99
trap 'rm -rf "$dir"' EXIT
n=0 failed=0
report() { # NAME OK
  n=$((n + 1))
  if [ "$2" = 0 ]; then echo "ok $n - $1"; else echo "not ok $n - $1"; sed 's/^/# /' "$dir/log" | head -n 10; failed=1; fi
}
# check NAME CODE PATTERN ARGS...: `weft ARGS` exits with CODE and prints PATTERN
check() {
  local name=$1 code=$2 pattern=$3 got; shift 3
  timeout 60 "$weft" "$@" >"$dir/log" 2>&1; got=$?
  [ $got = "$code" ] && grep -q -e "$pattern" "$dir/log"; report "$name" $?
}
if [ "$(uname -m)" != x86_64 ]; then echo "1..0 # SKIP machine code is saved on x86-64 only"; exit 0; fi

cat >"$dir/sum.hlo" <<'HLO'
HloModule sum, entry_computation_layout={(f32[4,3]{0,1}, s32[2])->f32[4,3]}
add { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b) }
ENTRY e {
  x = f32[4,3]{0,1} parameter(0)
  i = s32[2] parameter(1)
  s = f32[4,3] sine(x)
  z = f32[] constant(0)
  r = f32[4] reduce(s, z), dimensions={1}, to_apply=add
  b = f32[4,3] broadcast(r), dimensions={0}
  ROOT o = f32[4,3] multiply(b, s)
}
HLO
sed 's/HloModule sum.*/HloModule ring, replica_count=2/; s/{0,1}//; s/ROOT o = .*/o = f32[4,3] multiply(b, s)\n  ROOT g = f32[4,3] all-reduce(o), replica_groups={{0,1}}, to_apply=add/' "$dir/sum.hlo" >"$dir/ring.hlo"

results() { timeout 60 "$weft" run "$@" 2>"$dir/log" | grep 'result '; }
# same NAME PROGRAM FILE: both give the same results, and there are some
same() { [ -n "$(results "$2")" ] && [ "$(results "$2")" = "$(results "$3")" ]; report "$1" $?; }

check "a program is compiled" 0 'machine code for this processor' compile "$dir/sum.hlo" -o "$dir/sum.weft"
same "the file gives the program's results" "$dir/sum.hlo" "$dir/sum.weft"
check "a program for several processors" 0 'for x86-64,x86-64-v3,x86-64-v4' compile "$dir/sum.hlo" --cpu x86-64,x86-64-v3,x86-64-v4 -o "$dir/levels.weft"
same "the file for several processors gives the same results" "$dir/sum.hlo" "$dir/levels.weft"
check "a program of two devices" 0 'machine code' compile "$dir/ring.hlo" -o "$dir/ring.weft"
same "its file runs on two devices" "$dir/ring.hlo" "$dir/ring.weft"
# each kernel that is compiled leaves its LLVM module in this folder
rm -rf "$dir/llvm"; WEFT_DUMP_LLVM=$dir/llvm timeout 60 "$weft" run "$dir/sum.weft" --quiet >"$dir/log" 2>&1 && [ ! -e "$dir/llvm" ]
report "no kernel is compiled on load" $?
rm -rf "$dir/hlo"; WEFT_DUMP_HLO=$dir/hlo timeout 60 "$weft" run "$dir/sum.weft" --quiet >"$dir/log" 2>&1 && [ ! -e "$dir/hlo" ]
report "no pass runs on load" $?
check "a compiled file is inspected" 0 'fusion' inspect "$dir/sum.weft" --emit hlo

check "a processor that is not known" 2 'no processor "z80": expected native' compile "$dir/sum.hlo" --cpu z80 -o "$dir/no.weft"
check "no file to write" 2 'expected -o FILE' compile "$dir/sum.hlo"
check "a folder that is not there" 2 'cannot write' compile "$dir/sum.hlo" -o "$dir/none/sum.weft"
[ ! -e "$dir/no.weft" ]; report "a failed compilation writes no file" $?
mkfifo "$dir/pipe"
timeout 30 cat "$dir/pipe" >"$dir/from_pipe.weft" & reader=$!
check "a pipe is written to" 0 'machine code' compile "$dir/sum.hlo" -o "$dir/pipe"
wait $reader
[ -p "$dir/pipe" ] && check "what came through it runs" 0 'f32' run "$dir/from_pipe.weft"
[ -p "$dir/pipe" ]; report "and is a pipe still" $?
check "comparing needs the program" 2 'need the program itself' run "$dir/sum.weft" --compare reference
head -c 1000 "$dir/sum.weft" >"$dir/cut.weft"
check "a file that is cut short" 3 'damaged' run "$dir/cut.weft"
sed '1s/weft.exe0/weft.exe9/' "$dir/sum.weft" >"$dir/version.weft"
check "a file of another version" 3 'serialized by Weft 9' run "$dir/version.weft"
echo "1..$n"
exit $failed
