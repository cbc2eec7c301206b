#!/bin/sh
# Another LLVM, hwloc or OpenSSL in the process, whose names are visible to all, takes no call of the plugin and of the command.  A
# preloaded library plays them: it ends the process when it is called.  Prints TAP.
build=${WEFT_BUILDDIR:-build} source=${WEFT_SRCDIR:-.}
plugin=$build/.libs/pjrt_weft.so
if nm -D "$plugin" | grep -qE ' U __(asan|tsan|ubsan)'; then echo "1..0 # SKIP a sanitizer's runtime must be loaded first"; exit 0; fi
command -v cc > /dev/null || { echo "1..0 # SKIP no cc"; exit 0; }
dir=$(mktemp -d) || exit 99
trap 'rm -rf "$dir"' EXIT
cat > "$dir/other.c" << 'END'
#include <stdlib.h>
#include <unistd.h>
#define TAKEN(name) void name(void) { if (write(2, "another library was called\n", 27)) abort(); abort(); }
TAKEN(hwloc_topology_init) TAKEN(hwloc_topology_load) TAKEN(hwloc_get_type_depth) TAKEN(hwloc_bitmap_first) TAKEN(hwloc_bitmap_isset)
TAKEN(hwloc_bitmap_alloc) TAKEN(hwloc_topology_destroy) TAKEN(hwloc_get_obj_by_depth)
#ifdef OPENSSL_INSIDE
TAKEN(EVP_MD_CTX_new) TAKEN(EVP_DigestInit_ex) TAKEN(EVP_sha256) TAKEN(SSL_CTX_new) TAKEN(HMAC)
#endif
TAKEN(LLVMContextCreate) TAKEN(LLVMInt32TypeInContext) TAKEN(LLVMAddFunction) TAKEN(LLVMModuleCreateWithNameInContext) TAKEN(LLVMRunPasses)
END
needs_openssl() { readelf -d "$1" | grep -qE 'NEEDED.*lib(ssl|crypto)'; }
if needs_openssl "$plugin"; then inside=; else inside=-DOPENSSL_INSIDE; fi
cc -shared -fPIC $inside -o "$dir/other.so" "$dir/other.c" || exit 99
# How a plugin with a shared LLVM behaves: it refuses.
shared=$(readelf -d "$plugin" | grep 'NEEDED.*LLVM')
echo 1..5
# the_case NUMBER NAME PATTERN COMMAND...
the_case() {
  number=$1 name=$2 pattern=$3; shift 3
  [ -z "$shared" ] || pattern='two LLVMs in this process'
  WEFT_CACHE_DIR=$dir/cache LD_PRELOAD=$dir/other.so timeout 60 "$@" > "$dir/log" 2>&1
  if grep -q "$pattern" "$dir/log" && ! grep -q 'another library was called' "$dir/log"; then echo "ok $number - $name"
  else echo "not ok $number - $name"; sed 's/^/# /' "$dir/log" | head -n 20; fi
}
cat > "$dir/program.hlo" << 'END'
HloModule m
ENTRY e { p = f32[4] parameter(0)  c = f32[4] constant({1, 2, 3, 4})  s = f32[4] sine(p)  ROOT a = f32[4] add(s, c) }
END
the_case 1 "the command compiles and runs" 'f32\[4\]' "$build/weft" run "$dir/program.hlo"
the_case 2 "the plugin compiles and runs" '^10 11$' "$build/examples/pjrt_client" "$plugin"
the_case 3 "a larger program" 'loss\|f32' "$build/weft" run "$source/examples/train.hlo"
[ -n "$shared" ] || the_case 4 "the machine is described by Weft's hwloc" 'hardware threads  *[1-9]' "$build/weft" info
[ -z "$shared" ] || echo "ok 4 - the machine is described by Weft's hwloc # SKIP LLVM is shared"
# libweft is linked as the plugin is, so a program's own OpenSSL and libweft's do not meet.
if ! needs_openssl "$build/.libs/libweft.so"; then echo "ok 5 - libweft has OpenSSL inside"
elif needs_openssl "$plugin"; then echo "ok 5 - libweft has OpenSSL inside # SKIP no archive of OpenSSL that a shared object can hold"
else echo "not ok 5 - libweft needs another OpenSSL"; fi
