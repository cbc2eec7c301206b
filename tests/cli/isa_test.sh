#!/bin/sh
# XLA_FLAGS=--xla_cpu_max_isa: kernels and library kernels keep to the instructions that the flag names, and results stay right.
weft=$WEFT_BUILDDIR/weft
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
cases=0

if [ "$(uname -m)" != x86_64 ]; then echo "1..0 # SKIP the flag's names are those of x86-64"; exit 0; fi

ok() { # STATUS DESCRIPTION
  cases=$((cases + 1))
  if [ "$1" -eq 0 ]; then echo "ok $cases - $2"; return; fi
  echo "not ok $cases - $2"
  tail -n 20 "$tmp/out" "$tmp/err" | cut -c1-300 | sed 's/^/# /'
}
limited() { # ISA COMMAND...: its output is in $tmp/out and $tmp/err
  isa=$1
  shift
  XLA_FLAGS="--xla_cpu_enable_fast_math=false --xla_cpu_max_isa=$isa" timeout 300 "$@" >"$tmp/out" 2>"$tmp/err"
}

# products of each type that has an engine of its own, a convolution, a sort and a kernel of vectors
cat >"$tmp/work.hlo" <<'END'
HloModule work
less { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT l = pred[] compare(a, b), direction=LT }
ENTRY e {
  a = f32[96,80] parameter(0)
  b = f32[80,112] parameter(1)
  x = f32[2,4,14,14] parameter(2)
  k = f32[8,4,3,3] parameter(3)
  p = f32[96,112] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ah = bf16[96,80] convert(a)
  bh = bf16[80,112] convert(b)
  ph = bf16[96,112] dot(ah, bh), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ai = s8[96,80] iota(), iota_dimension=1
  bi = s8[80,112] iota(), iota_dimension=0
  pi = s32[96,112] dot(ai, bi), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  c = f32[2,8,14,14] convolution(x, k), window={size=3x3 pad=1_1x1_1}, dim_labels=bf01_oi01->bf01
  s = f32[96,112] sort(p), dimensions={1}, to_apply=less
  e = f32[96,112] exponential(p)
  ROOT t = (f32[96,112], bf16[96,112], s32[96,112], f32[2,8,14,14], f32[96,112], f32[96,112]) tuple(p, ph, pi, c, s, e)
}
END
for isa in SSE4_2 AVX AVX2 AVX512 AVX512_VNNI AVX512_BF16 AMX AMX_FP16; do
  limited $isa "$weft" run "$tmp/work.hlo" --quiet --compare reference
  ok $? "results with at most $isa agree with the reference"
done

# registers and instructions that the code of a kernel must not have: ZMM, YMM, and those of VEX (their names begin with v)
cat >"$tmp/vectors.hlo" <<'END'
HloModule vectors
ENTRY e { a = f32[4096] parameter(0)  b = f32[4096] multiply(a, a)  ROOT c = f32[4096] add(b, a) }
END
"$weft" inspect "$tmp/vectors.hlo" --kernels >"$tmp/out" 2>"$tmp/err"
kernel=$(grep -oE '[a-z_]*fusion[.a-z_0-9]*' "$tmp/out" | head -n 1)
lacks() { # ISA PATTERN
  limited "$1" "$weft" inspect "$tmp/vectors.hlo" --kernel "$kernel"
  ok $? "the code of $kernel with at most $1"
  grep -q mulps "$tmp/out"
  ok $? "... multiplies vectors"
  ! grep -qE "$2" "$tmp/out"
  ok $? "... without $2"
}
lacks SSE4_2 '%ymm|%zmm|[[:space:]]vmulps|[[:space:]]vfmadd'
lacks AVX '%zmm|[[:space:]]vfmadd'
lacks AVX2 '%zmm'

limited avx2 "$weft" info
grep -q 'kernels are for .* (at most AVX2: xla_cpu_max_isa)$' "$tmp/out"
ok $? "info names the limit, which may be written in small letters"
XLA_FLAGS="--xla_cpu_max_isa=AVX2 --xla_cpu_max_isa=SSE4_2" "$weft" info >"$tmp/out" 2>"$tmp/err"
grep -q 'at most SSE4_2' "$tmp/out"
ok $? "of two flags the last one counts"
limited MMX "$weft" run "$tmp/vectors.hlo" --quiet
ok $? "a name that XLA does not know limits nothing"
grep -q 'WARN.*xla_cpu_max_isa.*expected SSE4_2' "$tmp/err"
ok $? "... and is warned of"

"$weft" compile "$tmp/vectors.hlo" --cpu x86-64-v3 -o "$tmp/vectors.weft" >"$tmp/out" 2>"$tmp/err"
ok $? "a program is compiled for AVX2"
limited AVX "$weft" run "$tmp/vectors.weft"
[ $? -ne 0 ] && grep -q 'x86-64-v3 (wants avx2)' "$tmp/err"
ok $? "... and is refused where AVX is the limit"
echo "1..$cases"
