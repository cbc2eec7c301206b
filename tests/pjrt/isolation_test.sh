#!/bin/sh
# Another LLVM in the process, whose names are visible to all, takes no call of the plugin and of the command.  A preloaded
# library plays that LLVM: it ends the process when it is called.  Prints TAP.
build=${WEFT_BUILDDIR:-build} source=${WEFT_SRCDIR:-.}
plugin=$build/.libs/pjrt_weft.so
if nm -D "$plugin" | grep -qE ' U __(asan|tsan|ubsan)'; then echo "1..0 # SKIP a sanitizer's runtime must be loaded first"; exit 0; fi
command -v cc > /dev/null || { echo "1..0 # SKIP no cc"; exit 0; }
dir=$(mktemp -d) || exit 99
trap 'rm -rf "$dir"' EXIT
cat > "$dir/other.c" << 'END'
#include <stdlib.h>
#include <unistd.h>
#define TAKEN(name) void name(void) { if (write(2, "another LLVM was called\n", 24)) abort(); abort(); }
TAKEN(LLVMContextCreate) TAKEN(LLVMInt32TypeInContext) TAKEN(LLVMAddFunction) TAKEN(LLVMModuleCreateWithNameInContext) TAKEN(LLVMRunPasses)
END
cc -shared -fPIC -o "$dir/other.so" "$dir/other.c" || exit 99
# How a plugin with a shared LLVM behaves: it refuses.
shared=$(readelf -d "$plugin" | grep 'NEEDED.*LLVM')
echo 1..3
# the_case NUMBER NAME PATTERN COMMAND...
the_case() {
  number=$1 name=$2 pattern=$3; shift 3
  [ -z "$shared" ] || pattern='two LLVMs in this process'
  LD_PRELOAD=$dir/other.so timeout 60 "$@" > "$dir/log" 2>&1
  if grep -q "$pattern" "$dir/log" && ! grep -q 'another LLVM was called' "$dir/log"; then echo "ok $number - $name"
  else echo "not ok $number - $name"; sed 's/^/# /' "$dir/log" | head -n 20; fi
}
cat > "$dir/program.hlo" << 'END'
HloModule m
ENTRY e { p = f32[4] parameter(0)  c = f32[4] constant({1, 2, 3, 4})  s = f32[4] sine(p)  ROOT a = f32[4] add(s, c) }
END
the_case 1 "the command compiles and runs" 'f32\[4\]' "$build/weft" run "$dir/program.hlo"
the_case 2 "the plugin compiles and runs" '^10 11$' "$build/examples/pjrt_client" "$plugin"
the_case 3 "a larger program" 'loss\|f32' "$build/weft" run "$source/examples/train.hlo"
