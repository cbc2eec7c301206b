#!/usr/bin/env python3
"""Rules of style that a compiler does not check.  Prints TAP.

Comments in C files fit 120 columns, a function whose name ends in _locked says which lock it requires, in C files
and files of HLO each HLO instruction has a line of its own, only base/array.c calls realloc, WEFT_TEXT is of macros, and
hot functions have names of their own.
"""
import glob
import os
import re
import sys

ROOT = os.environ.get("WEFT_SRCDIR", ".")
COLUMNS = 120
# Comments and what can hold the beginning of one: literals.
TOKEN = re.compile(r'/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)
LOCKED = re.compile(r"^(?!\s|return|#)\w[\w \*]*?\b(\w+_locked)\([^;{]*?\)[^;{]*[;{]", re.M)

# In a line of C: a literal, and what joins two literals on a line to one text.
LITERAL = re.compile(r'"((?:\\.|[^"\\])*)"')
JOINT = re.compile(r'" *\w+(?:\("[^"]*"\))? *"')
# The beginning of an HLO instruction: a name, `=`, a shape and an opcode; in templates, letters and formats stand for them.
INSTRUCTION = re.compile(r'(?<![\w.%$@#{,=-])(?:ROOT )?[%A-Za-z_][\w.%-]* = (?:\([^="]*?\)|[^\s()=;"]+) [a-zX%][\w%-]*\(')


def wide_comments(text):
    """The numbers of the lines that a comment makes wider than it may be; a macro's lines are laid out by its author."""
    lines = text.split("\n")
    for token in TOKEN.finditer(text):
        if not token.group().startswith("/*"):
            continue
        first = text.count("\n", 0, token.start())
        for number in range(first, first + token.group().count("\n") + 1):
            line = lines[number]
            begin = token.start() - text.rfind("\n", 0, token.start()) - 1 if number == first else 0
            if len(line) > COLUMNS and begin < COLUMNS and not line.endswith("\\") and '"' not in line[:begin]:
                yield number + 1


def unannotated(texts):
    """Names of functions *_locked of which no declaration says what it requires."""
    declared = {}
    for text in texts:
        for found in LOCKED.finditer(text):
            declared.setdefault(found.group(1), []).append("WEFT_REQUIRES" in found.group(0))
    return sorted(name for name, annotated in declared.items() if not any(annotated))


def packed_hlo(text):
    """The numbers of the lines where an HLO instruction does not begin the text of its literal.

    A computation of one instruction may stand on one line: `negated { ROOT n = f32[] negate(p) }`."""
    for number, line in enumerate(text.split("\n"), 1):
        for literal in LITERAL.finditer(JOINT.sub("X", line)):
            body = literal.group(1).replace("\\n", "\n")
            found = list(INSTRUCTION.finditer(body))
            if len(found) > 1 or any(body[:i.start()].strip() and body[:i.start()].rstrip()[-1] != "{" for i in found):
                yield number


def texts_of_no_macro(texts):
    """Names in WEFT_TEXT(NAME) that no #define makes a number: the name itself would be the text."""
    defined = {name for text in texts for name in re.findall(r"^ *# *define +(\w+)", text, re.M)}
    named = {name for text in texts for name in re.findall(r"\bWEFT_TEXT\((\w+)\)", text)} - {"macro"}
    return sorted(named - defined)


REALLOC = re.compile(r"\brealloc(?:array)?\(")


def grown_by_hand(texts):
    """Paths of sources that call realloc themselves: src/base/array.c is the one that may."""
    return sorted(path for path, text in texts.items()
                  if path != os.path.join("src", "base", "array.c") and REALLOC.search(TOKEN.sub("", text)))


HOT = re.compile(r"^static CPU_HOT [\w \*]*?\b(\w+)\(", re.M)


def hot_twice(texts):
    """Names that two files give a hot function: clang before version 17 makes a symbol of them that all files see."""
    files = {}
    for path, text in texts.items():
        for name in set(HOT.findall(text)):
            files.setdefault(name, []).append(path)
    return sorted(f"{name}: {', '.join(paths)}" for name, paths in files.items() if len(paths) > 1)


def report(number, name, failures):
    print(f"{'not ok' if failures else 'ok'} {number} - {name}")
    for failure in failures:
        print(f"# {failure}")


def main():
    paths = [p for folder in ("src", "include", "tests", "bench", "examples")
             for kind in ("c", "h", "def") for p in glob.glob(os.path.join(ROOT, folder, "**", "*." + kind), recursive=True)
             if ".pb-c." not in p]
    texts = {path: open(path, encoding="utf-8").read() for path in sorted(paths)}
    assert len(texts) > 400, "the sources are not where they are looked for"
    report(1, f"comments fit {COLUMNS} columns",
           [f"{os.path.relpath(path, ROOT)}:{line}" for path, text in texts.items() for line in wide_comments(text)])
    report(2, "a comment that is too wide is noticed",
           [] if list(wide_comments("int a; /* " + "b " * 60 + "*/\n")) == [1] else ["it is not"])
    in_source = [text for path, text in texts.items() if os.path.relpath(path, ROOT).startswith("src")]
    report(3, "functions *_locked say which lock they require", unannotated(in_source))
    report(4, "one that does not say it is noticed",
           [] if unannotated(["static void a_locked(int a)\n{\n"]) == ["a_locked"] else ["it is not"])
    report(5, "HLO has one instruction on a line of a C file",
           [f"{os.path.relpath(path, ROOT)}:{line}" for path, text in texts.items() for line in packed_hlo(text)])
    programs = [p for p in glob.glob(os.path.join(ROOT, "tests", "**", "*.hlo"), recursive=True) if "/corpus/" not in p]
    assert len(programs) > 40, "the programs are not where they are looked for"
    report(6, "so has a file of HLO, but for a computation of one instruction",
           [f"{os.path.relpath(path, ROOT)}:{number}" for path in sorted(programs)
            for number, line in enumerate(open(path, encoding="utf-8"), 1) if len(INSTRUCTION.findall(line)) > 1])
    packed = ['"a = f32[] parameter(0) b = f32[] negate(a)"', '"  a = f32[] parameter(0)\\n  ROOT b = f32[] negate(a)\\n"',
              '"a = f32" SHAPE " parameter(0) b = f32" SHAPE " negate(a)"', '"dimensions={0} ROOT r = (f32[2], s32[]) tuple(a, b)"',
              '"  y = f32[2] " OF("add") "(a, b) ROOT z = %s %s(y)"']
    plain = ['"negated { ROOT n = f32[] negate(p) }\\n"', '"  ROOT b = f32[2] add(a, c), metadata={op_name=\\"x = y\\"}\\n"']
    report(7, "packed HLO is noticed",
           [line for line in packed if list(packed_hlo(line)) != [1]] + [line for line in plain if list(packed_hlo(line))])
    report(8, "arrays grow by base/array.h",
           grown_by_hand({os.path.relpath(path, ROOT): text for path, text in texts.items()
                          if os.path.relpath(path, ROOT).startswith("src")}))
    report(9, "one that does not is noticed",
           [] if grown_by_hand({"src/a.c": "/* realloc(a) */ p = realloc(p, 2);", "src/b.c": "/* realloc(b) */"})
           == ["src/a.c"] else ["it is not"])
    report(10, "what WEFT_TEXT makes a text of is a macro", texts_of_no_macro(in_source))
    report(11, "what is none is noticed",
           [] if texts_of_no_macro(["enum { MOST = 1 };\n#define LEAST 1\nWEFT_TEXT(MOST) WEFT_TEXT(LEAST)"]) == ["MOST"]
           else ["it is not"])
    report(12, "hot functions of two files have two names",
           hot_twice({path: text for path, text in texts.items() if path.endswith(".c")}))
    report(13, "one name for two is noticed",
           [] if len(hot_twice({"a.c": "static CPU_HOT void f(int a)\n{", "b.c": "static CPU_HOT int f(void)\n{"})) == 1
           else ["it is not"])
    print("1..13")


main()
