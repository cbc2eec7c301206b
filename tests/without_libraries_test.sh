#!/bin/bash
# A build without OpenBLAS, oneDNN or libfabric says what it lacks, and does the rest: matrix products of all types, Cholesky factors and triangular
# systems give the right numbers, JAX's calls of LAPACK are refused by name.  The first three checks hold for every build.  Prints TAP.
weft=${WEFT_BUILDDIR:-.}/weft config=${WEFT_BUILDDIR:-.}/config.h
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
has() { grep -q "^#define HAVE_$1 1" "$config" && echo yes || echo no; }
blas=$(has OPENBLAS) fabric=$(has LIBFABRIC) onednn=$(has ONEDNN)

check "weft info: OpenBLAS is there: $blas" 0 "OpenBLAS  *$blas" info
check "weft info: libfabric is there: $fabric" 0 "libfabric  *$fabric" info
check "weft info: oneDNN is there: $onednn" 0 "oneDNN  *$onednn" info
# a convolution that oneDNN takes where it is there, and Weft's kernel elsewhere
cat >"$dir/convolution.hlo" <<'HLO'
HloModule convolution
ENTRY e {
  x = f32[1,20,20,16] parameter(0)
  k = f32[3,3,16,32] parameter(1)
  ROOT y = f32[1,20,20,32] convolution(x, k), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f
}
HLO
check "a convolution agrees with the reference" 0 'agree' run "$dir/convolution.hlo" --quiet --compare reference
check "a saved program with a convolution" 0 '' compile "$dir/convolution.hlo" -o "$dir/convolution.weft"
WEFT_ONEDNN=0 check "runs where oneDNN is not used" 0 'result' run "$dir/convolution.weft"
# operands in both orders, vectors, and more contracted elements than one panel has
{
  echo "HloModule products"
  echo "ENTRY e {"
  i=0 results=()
  for type in f32 f64 c64 c128 f16; do
    for sizes in "5 7 3" "1 33 40" "37 1 20" "64 48 100" "6 5 1500"; do
      set -- $sizes; i=$((i + 2))
      echo "  a$i = $type[$1,$3] parameter($((2 * i - 4)))"
      echo "  b$i = $type[$3,$2] parameter($((2 * i - 3)))"
      echo "  r$i = $type[$1,$2] dot(a$i, b$i), lhs_contracting_dims={1}, rhs_contracting_dims={0}"
      echo "  at$i = $type[$3,$1] parameter($((2 * i - 2)))"
      echo "  bt$i = $type[$2,$3] parameter($((2 * i - 1)))"
      echo "  t$i = $type[$1,$2] dot(at$i, bt$i), lhs_contracting_dims={0}, rhs_contracting_dims={1}"
      results+=("$type[$1,$2]:r$i" "$type[$1,$2]:t$i")
    done
  done
  shapes=$(printf '%s, ' "${results[@]%%:*}") names=$(printf '%s, ' "${results[@]##*:}")
  echo "  ROOT out = (${shapes%, }) tuple(${names%, })"
  echo "}"
} >"$dir/products.hlo"
check "products of all kinds agree with the reference" 0 'agree' run "$dir/products.hlo" --quiet --compare reference

cat >"$dir/factor.hlo" <<'HLO'
HloModule factor
ENTRY e {
  a = f64[2,2] constant({{4, 2}, {2, 10}})
  l = f64[2,2] cholesky(a), lower=true
  b = f64[2,1] constant({{8}, {13}})
  ROOT x = f64[2,1] triangular-solve(l, b), left_side=true, lower=true, transpose_a=NO_TRANSPOSE
}
HLO
# L = [2 0; 1 3], L x = [8 13] has x = [4 3]
check "a Cholesky factor and a triangular system" 0 '4.*3' run "$dir/factor.hlo"
cat >"$dir/lapack.hlo" <<'HLO'
HloModule lapack
ENTRY e {
  a = f32[2,2]{0,1} parameter(0)
  ROOT r = (f32[2,2]{0,1}, s32[]) custom-call(a), custom_call_target="lapack_spotrf_ffi", operand_layout_constraints={f32[2,2]{0,1}}, api_version=API_VERSION_TYPED_FFI, backend_config={uplo = 76 : ui8}
}
HLO
if [ $blas = no ]; then check "a call of LAPACK names what is missing" 2 'no OpenBLAS, and no LAPACK (configure --without-openblas)' run "$dir/lapack.hlo"
else check "a call of LAPACK" 0 'result' run "$dir/lapack.hlo"; fi
if [ $blas = no ] && ldd "$weft" 2>/dev/null | grep -i blas >"$dir/log"; then report "no OpenBLAS is linked" 1
else report "OpenBLAS is linked: $blas" 0; fi
export WEFT_COLLECTIVE_CONNECT_TIMEOUT=3s # the ranks wait for each other until then
if [ $fabric = no ]; then check "processes without shared memory name what is missing" 3 'no libfabric (configure --without-libfabric)' bench collectives --how fabric --ranks 2 --min-bytes 64 --max-bytes 64
else n=$((n + 1)); echo "ok $n - processes without shared memory # SKIP this build has libfabric"; fi
echo "1..$n"
exit $failed
