#!/bin/bash
# `make install` puts documents, examples and an environment module file where people look for them: what the documents name is
# there, and the module file leads to what is installed.  Prints TAP.
build=${WEFT_BUILDDIR:-.}
root=$(mktemp -d) || exit 99
trap 'rm -rf "$root"' EXIT
make -s -C "$build" DESTDIR="$root" install-nobase_dist_docDATA install-modulefileDATA >"$root/log" 2>&1 ||
  { sed 's/^/# /' "$root/log"; echo "not ok 1 - documents install"; echo "1..1"; exit 1; }
n=0 failed=0
report() { # NAME OK: the log is shown if it failed
  n=$((n + 1))
  if [ "$2" = 0 ]; then echo "ok $n - $1"; else echo "not ok $n - $1"; sed 's/^/# /' "$root/log" | head -n 20; failed=1; fi
}
documents=$(dirname "$(find "$root" -name README.md)")
# Links between documents: of the tree's files, those about its development alone are not installed.
find "$documents" -name '*.md' | while read -r page; do
  grep -oE '\]\([^)#: ]+' "$page" | sed 's/^](//' | while read -r link; do
    case $link in http*|*src/*|*tests/*|*bench/*|*build-aux/*|*adr*|*python*|*roadmap.md|*testing.md|*HACKING.md) continue ;; esac
    [ -e "$(dirname "$page")/$link" ] || echo "${page#"$documents"/}: $link"
  done
done >"$root/log"
[ ! -s "$root/log" ]; report "what the documents name is installed" $?
(cd "$documents" && ls docs/aot.md docs/c.md docs/jax.md examples/aot/Makefile examples/c/Makefile examples/jax/mlp.py LICENSE) >"$root/log" 2>&1
report "documents and examples are in $(basename "$(dirname "$documents")")/$(basename "$documents")" $?
module=$(find "$root" -path '*/modulefiles/weft/*' -type f)
head -n 1 "$module" >"$root/log"; grep -q '^#%Module1' "$root/log" && ! grep -q '@[A-Z]*@' "$module"; report "a module file" $?
if command -v tclsh >/dev/null; then
  # the commands of a module system, which print what they are given
  { echo 'foreach c {module-whatis conflict prepend-path} { proc $c args "puts \"$c \$args\"" }'; echo "source $module"; } | tclsh >"$root/log" 2>&1
  grep -q '^prepend-path PATH /.*bin$' "$root/log" && grep -q '^prepend-path PKG_CONFIG_PATH /.*pkgconfig$' "$root/log" && grep -q '^conflict weft$' "$root/log"
  report "the module file runs" $?
else n=$((n + 1)); echo "ok $n - the module file runs # SKIP no tclsh"; fi
echo "1..$n"
exit $failed
