#!/bin/sh
# The C client of examples/ on the plugin: right results, and nothing lost or misused under valgrind.  Prints TAP.
build=${WEFT_BUILDDIR:-build}
plugin=$build/.libs/pjrt_weft.so
client=$build/examples/pjrt_client
want='4 5
10 11'
echo 1..3
got=$("$client" "$plugin" 2>&1)
if [ "$got" = "$want" ]; then echo "ok 1 - the client's matrix product"; else echo "not ok 1 - the client's matrix product"; echo "$got" | sed 's/^/# /'; fi
if "$client" /nonexistent.so 2>/dev/null; then echo "not ok 2 - a missing plugin is an error"; else echo "ok 2 - a missing plugin is an error"; fi
if [ -n "$WEFT_SANITIZED" ]; then echo "ok 3 # SKIP the sanitizer has looked already"
elif ! command -v valgrind >/dev/null; then echo "ok 3 # SKIP no valgrind"
else
  # Static state of libraries (LLVM, OpenBLAS) stays reachable at the end and is ignored; lost memory and invalid accesses are faults of Weft.
  log=$(mktemp)
  if valgrind --quiet --suppressions="${WEFT_SRCDIR:-.}/tests/valgrind.supp" --error-exitcode=9 --leak-check=full --errors-for-leak-kinds=definite --log-file="$log" \
    "$client" "$plugin" >/dev/null 2>&1; then echo "ok 3 - valgrind finds nothing"
  else echo "not ok 3 - valgrind finds nothing"; head -60 "$log" | sed 's/^/# /'; fi
  rm -f "$log"
fi
