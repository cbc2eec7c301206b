#!/usr/bin/env python3
"""Checks the documents of the repository.  Prints TAP.

Links between Markdown files lead to a file, and to a heading where they name one; every page of docs/ has a place in the
documentation site; the measured pages name machine, command and commit and show their own plots; and the geometric means that README.md and
docs/performance.md repeat are those of the measured pages.
"""
import glob
import os
import re

ROOT = os.environ.get("WEFT_SRCDIR", ".")
LINK = re.compile(r"\]\(([^)\s#]*)(?:#([^)\s]*))?\)")
HEADING = re.compile(r"^#+ +(.*)$", re.M)
MEANS = re.compile(r"Geometric means over (\d+) programs: compile ([\d.]+), first run ([\d.]+), best run ([\d.]+), temporaries ([\d.]+)")
SOURCE = re.compile(r"^Machine\b.*: .*\. Command: `.*`\. Commit: \w+", re.M)
PLOT = re.compile(r"\]\(([^)]*)\.svg\)")


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as f:
        return f.read()


def prose(text):
    """The text without blocks of code and without code in a line."""
    return re.sub(r"`[^`\n]*`", "", re.sub(r"^```.*?^```", "", text, flags=re.S | re.M))


def anchors(text):
    """The names that the headings of a page have in links, as GitHub and mkdocs make them."""
    return {re.sub(r"[^\w\- ]", "", heading.replace("`", "")).strip().lower().replace(" ", "-") for heading in HEADING.findall(text)}


def broken_links(path, text, exists, page):
    for target, anchor in LINK.findall(prose(text)):
        if "://" in target or target.startswith("mailto:"):
            continue
        to = os.path.normpath(os.path.join(os.path.dirname(path), target)) if target else path
        if not exists(to):
            yield f"{path}: {target} does not exist"
        elif anchor and to.endswith(".md") and anchor not in anchors(page(to)):
            yield f"{path}: {target}#{anchor}: no such heading"


def means(text):
    found = MEANS.search(text)
    return dict(zip(("programs", "compile", "first run", "run", "temporaries"), found.groups())) if found else {}


def table_row(text, name, columns):
    """The row of a table whose first cell is `name`, as the cells of the columns that are named."""
    for table in re.findall(r"(?:^\|.*\n)+", text, re.M):
        lines = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in table.splitlines()]
        for line in lines[2:]:
            if line[0] == name and set(columns) <= set(lines[0]):
                return {column: line[lines[0].index(column)] for column in columns}
    return {}


def report(number, name, failures):
    print(f"{'not ok' if failures else 'ok'} {number} - {name}")
    for failure in failures:
        print(f"# {failure}")


def main():
    folders = ("", "docs", "docs/adr", "docs/measured", "src/*", "tests/*", "tests/*/*")
    pages = sorted(os.path.relpath(p, ROOT) for folder in folders for p in glob.glob(os.path.join(ROOT, folder, "*.md")))
    assert len(pages) > 40, "the documents are not where they are looked for"
    exists = lambda path: os.path.exists(os.path.join(ROOT, path))
    report(1, "links lead to files and headings", [b for p in pages for b in broken_links(p, read(p), exists, read)])
    sample = list(broken_links("a/b.md", "[x](../c.md) [y](c.md#two-words) [z](#no) `[q](none.md)`", lambda p: p != "c.md",
                               lambda p: "# Two words\n"))
    report(2, "a broken link is noticed", [] if [b.split(": ", 1)[1] for b in sample] ==
           ["../c.md does not exist", "#no: no such heading"] else sample)
    site = read("docs/make_site.sh")
    report(3, "every page of docs/ has a place in the site",
           [p for p in pages if p.startswith("docs/") and not p.startswith("docs/adr/") and f": {p}\n" not in site])
    measured = {p: read(p) for p in pages if p.startswith("docs/measured/")}
    assert len(measured) > 5, "the measured pages are not where they are looked for"
    report(4, "measured pages name machine, command and commit in one line, and show their own plots",
           [p for p, text in measured.items() if not SOURCE.search(text) and "No script writes this page." not in text
            or any(plot != os.path.basename(p)[:-3] for plot in PLOT.findall(text))])
    wrong = []
    for page, in_readme, in_performance in (("programs", "Zen 4", "Zen 4 (AVX-512, VNNI), 2 cores"),
                                            ("programs-amx", "Xeon with AMX", "Emerald Rapids (AMX, AVX-512), 2 cores"),
                                            ("programs-avx2", None, "Zen 3 (AVX2 only), 2 cores")):
        want = means(read(f"docs/measured/{page}.md"))
        wrong += [f"README.md, {in_readme}: want {want}"] if in_readme and any(
            table_row(read("README.md"), in_readme, ["run", "first run", "compile"]).get(k) != want.get(k)
            for k in ("run", "first run", "compile")) else []
        row = table_row(read("docs/performance.md"), in_performance, ["programs", "compile", "first run", "run", "temporaries"])
        wrong += [f"docs/performance.md, {in_performance}: {row}, want {want}"] if not row or row != want else []
    report(5, "repeated figures are those of the measured pages", wrong)
    print("1..5")


main()
