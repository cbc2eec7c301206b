#!/usr/bin/env python3
"""Every UNIMPLEMENTED of the sources is in docs/unimplemented.md, and the other way round.  Prints TAP.

A row of the manual begins with the message, each printf directive of which is `…`.
"""
import glob
import os
import re
import sys

ROOT = os.environ.get("WEFT_SRCDIR", ".")
STRING = r'"(?:[^"\\]|\\.)*"'
# The format of an error: string literals and the directives of inttypes.h between them.
REFUSAL = re.compile(rf'(?:(?:WEFT|COORD)_ERR\(\s*UNIMPLEMENTED,|REFUSE\(\s*\w+,\s*\w+,)\s*((?:{STRING}|PRI\w+|\s)+)')
DIRECTIVE = re.compile(r"%(?:\.\d+)?(?:ll|l|t|z)?[a-zA-Z]")


def message(literals):
    text = re.sub(r"PRI\w+", '"d"', literals)
    text = "".join(s[1:-1] for s in re.findall(STRING, text))
    return DIRECTIVE.sub("…", text.replace('\\"', '"').replace("%%", "\0")).replace("\0", "%")


def refusals():
    for path in glob.glob(os.path.join(ROOT, "src", "**", "*.c"), recursive=True):
        for found in REFUSAL.finditer(open(path, encoding="utf-8").read()):
            yield message(found.group(1)), os.path.relpath(path, ROOT)


def main():
    refused = dict(refusals())
    page = open(os.path.join(ROOT, "docs", "unimplemented.md"), encoding="utf-8").read()
    manual = {row.strip() for row in re.findall(r"^\| (.*?) \|", page, re.M)} - {"message"}
    assert len(refused) > 40, "the sources are not where they are looked for"
    checks = (("what is refused is in the manual", {t: p for t, p in refused.items() if t not in manual}),
              ("what the manual lists is refused", {t: "docs/unimplemented.md" for t in manual if t not in refused}))
    for number, (name, missing) in enumerate(checks, 1):
        print(f"{'not ok' if missing else 'ok'} {number} - {name}")
        for text, path in sorted(missing.items()):
            print(f"# {path}: {text}")
    print(f"1..{len(checks)}")
    return any(missing for _, missing in checks)


sys.exit(main())
