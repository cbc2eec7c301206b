#!/bin/sh
# The layering table of docs/architecture.md holds: a module includes only what stands below it, and each foreign
# library has one home; neither includes nor the files of different modules form a circle, the files of one module none but those
# that docs/adr/0007 explains.  And every script parses.  Prints TAP.
cd "${WEFT_SRCDIR:-$(dirname "$0")/..}" || exit 99
awk_program='
BEGIN {
  allow["base"]       = "base"
  allow["hlo"]        = "hlo base"
  allow["stablehlo"]  = "stablehlo hlo base"
  allow["buffer"]     = "buffer hlo base"
  allow["passes"]     = "passes codegen buffer hlo base" # codegen/model alone (below); alias analysis: docs/adr/0002
  allow["codegen"]    = "codegen buffer hlo base"
  allow["collective"] = "collective base"
  allow["coord"]      = "coord base"
  allow["runtime"]    = "runtime collective buffer hlo base"
  allow["lower"]      = "lower runtime passes buffer collective hlo base"
  allow["cpu"]        = "cpu lower runtime passes codegen collective buffer hlo base"
  allow["gpu"]        = "gpu lower runtime passes codegen collective buffer hlo base"
  allow["program"]    = "program cpu runtime hlo base"
  allow["platform"]   = "platform cpu gpu runtime hlo buffer base"
  allow["pjrt"]       = "pjrt platform runtime stablehlo hlo passes buffer coord collective base"
  allow["cli"]        = "cli pjrt platform runtime stablehlo hlo passes buffer codegen coord collective base"
  # Platforms are known to one file of the registry, and the CPU to the library of programs in C, which has no other.
  knows["cpu"]        = "src/platform/registry.c src/program/program.c"
  knows["gpu"]        = "src/platform/registry.c"
  home["llvm-c/"]     = "codegen cpu gpu"
  home["hwloc.h"]     = "cpu"
  home["cblas.h"]     = "cpu"
  home["lapack"]      = "cpu"
  home["oneapi/"]     = "cpu"
  home["rdma/"]       = "collective"
  home["nghttp2/"]    = "coord"
  home["openssl/"]    = "coord collective codegen runtime"
  home["zlib.h"]      = "coord"
  home["protobuf-c/"] = "coord hlo pjrt"
  home["cpuid.h"]     = "codegen"
  home["cuda"]        = "gpu"
  home["nccl"]        = "gpu"
}
# Inside codegen the folders have borders of their own, and passes share the model with it.
BEGIN {
  inner["codegen/model"]  = "codegen/codegen.h codegen/model/"
  inner["codegen/code"]   = "codegen/codegen.h codegen/model/ codegen/code/"
  inner["codegen/emit"]   = "codegen/codegen.h codegen/model/ codegen/emit/"
  inner["codegen/host"]   = "codegen/codegen.h codegen/model/ codegen/emit/ codegen/code/ codegen/host/"
  inner["codegen/nvptx"]  = "codegen/codegen.h codegen/model/ codegen/code/cache.h codegen/emit/ codegen/nvptx/"
  inner["passes"]         = "codegen/model/"
  inner["gpu"]            = "codegen/codegen.h codegen/code/cache.h codegen/model/ codegen/nvptx/nvptx.h"
  inner["cli"]            = "codegen/codegen.h codegen/model/ codegen/nvptx/nvptx.h"
}
function may(from, file,   n, i, prefix) {
  n = split(from in inner ? inner[from] : "codegen/codegen.h codegen/model/", prefix, " ")
  for (i = 1; i <= n; i++) if (index(file, prefix[i]) == 1) return 1
  return 0
}
FNR == 1 { split(FILENAME, part, "/"); module = part[2]; folder = module == "codegen" && part[4] != "" ? "codegen/" part[3] : module }
/^[ \t]*#[ \t]*include[ \t]*"[a-z]+\// {
  split($0, quoted, "\""); split(quoted[2], dir, "/"); to = dir[1]
  if (to == "weft") next
  if (!(module in allow)) { print FILENAME ":" FNR ": module " module " is not in the table"; bad = 1; next }
  if (to == "codegen" && index(" " allow[module] " ", " codegen ") && !may(folder, quoted[2])) {
    print FILENAME ":" FNR ": " folder " may not include " quoted[2]; bad = 1
  }
  if (to in knows && module != to && index(" " knows[to] " ", " " FILENAME " ") == 0) {
    print FILENAME ":" FNR ": " knows[to] " alone may include " quoted[2]; bad = 1
  }
  if (index(" " allow[module] " ", " " to " ") == 0) { print FILENAME ":" FNR ": " module " may not include " quoted[2]; bad = 1 }
}
/^[ \t]*#[ \t]*include[ \t]*</ {
  name = $0; sub(/.*</, "", name); sub(/>.*/, "", name)
  for (prefix in home)
    if (index(name, prefix) == 1 && index(" " home[prefix] " ", " " module " ") == 0) {
      print FILENAME ":" FNR ": <" name "> belongs in " home[prefix]; bad = 1
    }
}
END { exit bad }'
# Circles between files, one a line as "MODULE FILE FILE ...", that no row of the ADR's table in file $1 allows.
circles()
{
  for module in collective codegen coord pjrt stablehlo; do
    find "src/$module" -name '*.c' 2>/dev/null | sort | xargs -r awk -v root="src/$module" -f "$awk_folder/circles.awk" | sed "s|^|$module |"
  done | awk -v table="$1" '
    BEGIN {
      while ((getline line < table) > 0)
        if (split(line, cell, "|") > 3) {
          gsub(/ /, "", cell[2])
          module_of[++rows] = cell[2]
          files_of[rows] = " " cell[3] " "
        }
    }
    {
      for (row = 1; row <= rows; row++) {
        for (i = 2; i <= NF && module_of[row] == $1 && index(files_of[row], " " $i " "); i++) {}
        if (i > NF) next
      }
      print
    }'
}
# Circles between files of different modules, one a line as "FILE FILE ...".  They need no include: a header of one module can
# declare what another module defines.
circles_across()
{
  find src -name '*.c' | sort | xargs -r awk -v root=src -f "$awk_folder/circles.awk" | awk '{
    module = $1
    sub(/\/.*/, "", module)
    for (i = 2; i <= NF; i++)
      if (index($i, module "/") != 1) { print; next }
  }'
}
# Files whose includes lead back to themselves, and what includes these: what is left when files that include none of the rest go.
include_program='
FNR == 1 { file = FILENAME; sub(/^(src|include)\//, "", file); left[file] = 1 }
/^[ \t]*#[ \t]*include[ \t]*"/ { split($0, quoted, "\""); includes[file] = includes[file] " " quoted[2] }
END {
  do {
    gone = 0
    for (file in left) {
      n = split(includes[file], names, " ")
      for (i = 1; i <= n && !(names[i] in left); i++) {}
      if (i > n) { delete left[file]; gone = 1; break }
    }
  } while (gone)
  for (file in left) { print file " includes" includes[file]; bad = 1 }
  exit bad
}'
awk_folder=$PWD/tests
echo 1..22
if found=$(find src -name '*.[ch]' | sort | xargs awk "$awk_program"); then echo "ok 1 - includes go down the layering table"
else echo "not ok 1 - includes go down the layering table"; echo "$found" | sed 's/^/# /'; fi
# The check itself is tested: it finds an include that breaks the table.
probe=$(mktemp -d) && mkdir -p "$probe/src/base" && echo '#include "hlo/hlo.h"' > "$probe/src/base/bad.c"
if (cd "$probe" && awk "$awk_program" src/base/bad.c >/dev/null); then echo "not ok 2 - a breach is noticed"; else echo "ok 2 - a breach is noticed"; fi
mkdir -p "$probe/src/codegen/emit" "$probe/src/passes" && cd "$probe" || exit 99
echo '#include "codegen/host/host.h"' > src/codegen/emit/bad.c && echo '#include "codegen/codegen.h"' > src/passes/bad.c
if awk "$awk_program" src/codegen/emit/bad.c >/dev/null || awk "$awk_program" src/passes/bad.c >/dev/null
then echo "not ok 3 - a breach inside codegen is noticed"; else echo "ok 3 - a breach inside codegen is noticed"; fi
mkdir -p src/platform && echo '#include "cpu/platform.h"' > src/platform/bad.c && cp src/platform/bad.c src/platform/registry.c
if awk "$awk_program" src/platform/registry.c >/dev/null && ! awk "$awk_program" src/platform/bad.c >/dev/null
then echo "ok 4 - a platform is known to the registry's file alone"; else echo "not ok 4 - a platform is known to the registry's file alone"; fi
cd "${OLDPWD}" || exit 99
rm -r "$probe"
# .ci/run is among them: no test runs it, so that an error in it would show only when it decides about a change.
wrong=$(for f in bootstrap quickstart .ci/run $(find tests bench -name '*.sh'); do [ ! -e "$f" ] || bash -n "$f" 2>&1; done)
if [ -z "$wrong" ]; then echo "ok 5 - every script parses"; else echo "not ok 5 - every script parses"; echo "$wrong" | sed 's/^/# /'; fi
if found=$(circles docs/adr/0007-circles-between-files.md) && [ -z "$found" ]; then echo "ok 6 - no circle between files that no record explains"
else echo "not ok 6 - no circle between files that no record explains"; echo "$found" | sed 's/^/# /'; fi
# The check of circles is tested too: with two files that call each other, one of them through a third file.
probe=$(mktemp -d) && mkdir -p "$probe/src/coord/wire"
printf 'int first(void)\n{\n  return second(); /* third() */\n}\n' > "$probe/src/coord/a.c"
printf 'int second(void)\n{\n  return third();\n}\n' > "$probe/src/coord/b.c"
printf 'int third(void)\n{\n  return first();\n}\n' > "$probe/src/coord/wire/c.c"
printf 'int alone(void)\n{\n  return first();\n}\n' > "$probe/src/coord/d.c"
found=$(cd "$probe" && circles /dev/null)
if [ "$found" = "coord a.c b.c wire/c.c" ]; then echo "ok 7 - a circle is noticed"; else echo "not ok 7 - a circle is noticed: $found"; fi
rm -r "$probe"
# A file's first line is its path, in full or from inside src or include, and what the file is.
head_program='FNR == 1 { name = FILENAME; sub(/^(src|include)\//, "", name); if (index($0, "/* " name " --") != 1 && index($0, "/* " FILENAME " --") != 1) { print FILENAME ": " $0; bad = 1 } } END { exit bad }'
if found=$(find src include tests bench examples -name '*.[ch]' ! -name '*.pb-c.[ch]' | sort | xargs awk "$head_program"); then
  echo "ok 8 - every C file begins with its path and what it is"
else echo "not ok 8 - every C file begins with its path and what it is"; echo "$found" | sed 's/^/# /'; fi
if printf '#include <config.h>\n' | awk "$head_program" - >/dev/null; then echo "not ok 9 - a file without a head is noticed"
else echo "ok 9 - a file without a head is noticed"; fi
# WEFT_GUARDED_BY behind a list of names holds for the last name only, so each member has a declaration of its own.
list_of_guarded='^[[:space:]]+[A-Za-z_][A-Za-z_0-9 ]* [*]*[A-Za-z_0-9]+,[^;()]*WEFT_GUARDED_BY'
if found=$(grep -rnE "$list_of_guarded" src tests --include='*.[ch]'); then
  echo "not ok 10 - every guarded member has its own declaration"; echo "$found" | sed 's/^/# /'
else echo "ok 10 - every guarded member has its own declaration"; fi
if printf '  int first, *last WEFT_GUARDED_BY(mu);\n' | grep -qE "$list_of_guarded"; then echo "ok 11 - a list of guarded members is noticed"
else echo "not ok 11 - a list of guarded members is noticed"; fi
# A function *_locked asserts that its lock is held, unless it is one line, which calls another one. The declarations say which
# lock (WEFT_REQUIRES), or the assertion does where clang cannot see that two expressions are one lock.
locked_program='/^[a-z].*[a-z0-9]_locked[(]/ && !/[;}]$/ { name = $0; begun = 1 }
begun && /^{/ { inside = 1; asserts = 0; begun = 0 }
begun && /;$/ { begun = 0 } # a declaration of two lines
inside && /weft_mutex_assert_held/ { asserts = 1 }
inside && /^}/ { if (!asserts) { print FILENAME ": " name; bad = 1 } inside = 0 }
END { exit bad }'
if found=$(find src -name '*.c' | sort | xargs awk "$locked_program"); then echo "ok 12 - functions that want a lock assert it"
else echo "not ok 12 - functions that want a lock assert it"; echo "$found" | sed 's/^/# /'; fi
if printf 'static void a_locked(int a,\n                     int b)\n{\n  use(a);\n}\n' | awk "$locked_program" >/dev/null
then echo "not ok 13 - a missing assertion is noticed"; else echo "ok 13 - a missing assertion is noticed"; fi
# Which instructions this processor has is asked in one file.
found=$(grep -rlE '__builtin_cpu_|getauxval' src --include='*.[ch]' | grep -vx src/codegen/model/processor.c)
if [ -z "$found" ]; then echo "ok 14 - one file asks the processor what it has"
else echo "not ok 14 - one file asks the processor what it has"; echo "$found" | sed 's/^/# /'; fi
if found=$(find src include -name '*.[ch]' -o -name '*.def' | sort | xargs awk "$include_program"); then echo "ok 15 - no circle of includes"
else echo "not ok 15 - no circle of includes"; echo "$found" | sed 's/^/# /'; fi
probe=$(mktemp -d) && mkdir -p "$probe/src/base" "$probe/src/hlo" && cd "$probe" || exit 99
printf '#include "hlo/b.h"\n' > src/base/a.h && printf '#include "base/c.h"\n' > src/hlo/b.h && printf '#include <a.h>\n' > src/base/c.h
straight=$(awk "$include_program" src/base/a.h src/hlo/b.h src/base/c.h) && printf '#include "base/a.h"\n' > src/base/c.h
if [ -n "$straight" ] || awk "$include_program" src/base/a.h src/hlo/b.h src/base/c.h >/dev/null
then echo "not ok 16 - a circle of includes is noticed"; else echo "ok 16 - a circle of includes is noticed"; fi
printf 'int first(void)\n{\n  return second();\n}\n' > src/base/a.c && printf 'int second(void)\n{\n  return first();\n}\n' > src/base/b.c
straight=$(circles_across)
mv src/base/b.c src/hlo/b.c
found=$(circles_across)
cd "${OLDPWD}" || exit 99
rm -r "$probe"
if [ -z "$straight" ] && [ "$found" = "base/a.c hlo/b.c" ]; then echo "ok 17 - a circle between modules is noticed"
else echo "not ok 17 - a circle between modules is noticed: $straight, $found"; fi
if found=$(circles_across) && [ -z "$found" ]; then echo "ok 18 - no circle between files of different modules"
else echo "not ok 18 - no circle between files of different modules"; echo "$found" | sed 's/^/# /'; fi
# The emitters know neither how many lanes a walker has nor how many threads or which memory a GPU has (docs/architecture.md): what
# depends on them asks lanes.c or the walker's table.
found=$(grep -nE -e '->lanes\b|\b(block_threads|cores|vector_bytes)\b|[aA]ddress_?[sS]pace|gen_grid|gen_host' src/codegen/emit/*.c | grep -v '^src/codegen/emit/lanes\.c:')
if [ -z "$found" ]; then echo "ok 19 - emitters know no lanes, threads or address spaces"
else echo "not ok 19 - emitters know no lanes, threads or address spaces"; echo "$found" | sed 's/^/# /'; fi
# A target that is built from nothing (make weft, make tests/fuzz/npy_fuzz) does not make BUILT_SOURCES, and which source includes
# which header is not known before its first compilation: every object waits for these headers, by one rule of Makefile.am.
# The headers that rules of the local.mk files make, and that BUILT_SOURCES does not name.
not_built_first() {
  awk '/^%D%\/[^%:]*\.h:/ { split($1, part, ":"); made[FILENAME " " part[1]] }
       /^BUILT_SOURCES/ { named[FILENAME] = named[FILENAME] $0 }
       /^[A-Z_]+ = / { value[FILENAME " $(" $1 ")"] = $0 }
       END { for (m in made) { split(m, of, " "); text = named[of[1]]
               for (v in value) { split(v, name, " "); if (name[1] == of[1] && index(text, name[2])) text = text value[v] }
               if (!index(text, of[2])) print of[1] ": " of[2] } }' "$@"
}
found=$(not_built_first src/*/local.mk src/*/*/local.mk)
if [ -z "$found" ]; then echo "ok 20 - BUILT_SOURCES names the headers that the build makes"
else echo "not ok 20 - BUILT_SOURCES names the headers that the build makes"; echo "$found" | sed 's/^/# /'; fi
probe=$(mktemp -d)
printf 'A_H = %%D%%/a.h\n%%D%%/a.h: %%D%%/a.c\n%%D%%/b.h: b.py\n%%D%%/c.h: c.py\nBUILT_SOURCES += $(A_H) %%D%%/b.h\n' >"$probe/local.mk"
if [ "$(not_built_first "$probe/local.mk")" = "$probe/local.mk: %D%/c.h" ]; then echo "ok 21 - a header that BUILT_SOURCES does not name is noticed"
else echo "not ok 21 - a header that BUILT_SOURCES does not name is noticed"; fi
rm -r "$probe"
# Objects of src with a source and without order-only prerequisites, in what make says of its rules.
objects_that_do_not_wait() {
  awk '/^src\/[^ ]*\.(lo|o): .*\.c( |$)/ { count++ } /^src\/[^ ]*\.(lo|o): .*\.c( |$)/ && !/ \| / { sub(":", "", $1); print $1 }
       END { if (count < 300) print "make names only " count + 0 " objects" }' | sort -u
}
if ! [ -f "${WEFT_BUILDDIR:-.}/Makefile" ]; then echo "ok 22 - every object waits for them # SKIP no build folder"
elif found=$(make -C "${WEFT_BUILDDIR:-.}" -pn weft 2>/dev/null | objects_that_do_not_wait) && [ -z "$found" ]; then echo "ok 22 - every object waits for them"
else echo "not ok 22 - every object waits for them"; echo "$found" | head -n 20 | sed 's/^/# /'; fi
