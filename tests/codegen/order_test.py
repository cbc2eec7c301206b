#!/usr/bin/env python3
"""The code that Weft makes does not depend on the order in which a compiler evaluates arguments.  Prints TAP.

A function of src/codegen emits if it calls a function of LLVM that appends to the code, or one that emits. C leaves open
in which order the arguments of a call, and the operands of an operator, are evaluated: at most one of them may emit.
"""
import glob
import json
import os
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.abspath(os.environ.get("WEFT_SRCDIR", "."))
BUILD = os.path.abspath(os.environ.get("WEFT_BUILDDIR", "."))
APPENDS = ("LLVMBuild", "LLVMAppendBasicBlock", "LLVMAddGlobal", "LLVMAddFunction")
POINTER = "*"  # a call through a pointer, to a function that may emit
SEQUENCED = ("&&", "||", ",")
BROKEN = """
typedef struct value *value;
value LLVMBuildAdd(value, value);
static value twice(value a) { return LLVMBuildAdd(a, a); }
value wrong(value a) { return LLVMBuildAdd(twice(a), twice(a)); }
value right(value a) { value b = twice(a); return LLVMBuildAdd(b, twice(a)); }
"""


def callee(node):
    while node["kind"] in ("ImplicitCastExpr", "ParenExpr"):
        node = node["inner"][0]
    named = node.get("referencedDecl", {})
    return named["name"] if named.get("kind") == "FunctionDecl" else POINTER


def children(node):
    return [child for child in node.get("inner", ()) if child]


def called_in(node):
    names = {callee(node["inner"][0])} if node["kind"] == "CallExpr" else set()
    return names.union(*(called_in(child) for child in children(node) if "kind" in child))


class Unit:
    """What one file calls: `calls` by function, and the places where two arguments have calls."""

    def __init__(self, clang, path, flags):
        command = [clang, "-Xclang", "-ast-dump=json", "-fsyntax-only", "-w", *flags, path]
        dump = subprocess.run(command, capture_output=True, text=True, check=False)
        if dump.returncode:
            raise RuntimeError(dump.stderr)
        self.calls, self.places, self.line = {}, [], 0
        self.name = os.path.relpath(path, ROOT)
        self.walk(json.loads(dump.stdout), None)

    def walk(self, node, function):
        for place in (node.get("loc"), node.get("range", {}).get("begin")):
            place = (place or {}).get("expansionLoc", place) or {}
            self.line = place.get("line", self.line)  # clang leaves out the line number if it equals that of the previous location
        line, kind = self.line, node.get("kind")
        if kind == "FunctionDecl":
            function = node["name"]
            self.calls.setdefault(function, set())
        if kind == "CallExpr" and function:
            self.calls[function].add(callee(node["inner"][0]))
        if kind == "CallExpr" or kind == "BinaryOperator" and node["opcode"] not in SEQUENCED:
            parts = [called_in(part) for part in (node["inner"][1:] if kind == "CallExpr" else node["inner"])]
            if sum(map(bool, parts)) > 1:
                self.places.append((line, function, parts))
        for child in children(node):
            self.walk(child, function)
        end = node.get("range", {}).get("end", {})
        self.line = end.get("expansionLoc", end).get("line", self.line)


def emitters(units):
    calls = {}
    for unit in units:
        for function, names in unit.calls.items():
            calls.setdefault(function, set()).update(names)
    found = {name for names in calls.values() for name in names if name.startswith(APPENDS)} | {POINTER}
    while more := {function for function, names in calls.items() if names & found} - found:
        found |= more
    return found


def faults(units):
    emit = emitters(units)
    return sorted({f"{unit.name}:{line}: in {function}()" for unit in units for line, function, parts in unit.places
                   if sum(bool(part & emit) for part in parts) > 1})


def main():
    clang = shutil.which("clang-19") or shutil.which("clang")
    config = shutil.which("llvm-config-19") or shutil.which("llvm-config")
    if not clang or not config:
        print("1..0 # SKIP there is no clang whose syntax tree could be read")
        return 0
    llvm = subprocess.run([config, "--includedir"], capture_output=True, text=True, check=True).stdout.strip()
    flags = ["-std=gnu11", "-D_GNU_SOURCE", "-DHAVE_CONFIG_H", f"-I{BUILD}", f"-I{ROOT}/src", f"-I{ROOT}/include",
             f"-I{BUILD}/src", f"-I{BUILD}/include", f"-I{llvm}"]
    sys.setrecursionlimit(10000)
    with tempfile.NamedTemporaryFile("w", suffix=".c") as broken:
        broken.write(BROKEN)
        broken.flush()
        seen = [fault.rsplit(" ", 1)[1] for fault in faults([Unit(clang, broken.name, [])])]
    units = [Unit(clang, path, flags) for folder in ("emit", "host", "nvptx")
             for path in sorted(glob.glob(os.path.join(ROOT, "src", "codegen", folder, "*.c")))]
    assert len(units) > 20, "the sources are not where they are looked for"
    checks = (("two arguments that emit are found", seen == ["wrong()"], [str(seen)]),
              ("at most one argument of a call emits", not faults(units), faults(units)))
    for number, (name, good, about) in enumerate(checks, 1):
        print(f"{'ok' if good else 'not ok'} {number} - {name}")
        if not good:
            print("".join(f"# {line}\n" for line in about), end="")
    print(f"1..{len(checks)}")
    return 0 if all(good for _, good, _ in checks) else 1


if __name__ == "__main__":
    sys.exit(main())
