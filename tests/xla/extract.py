"""Programs out of the sources of XLA and StableHLO, for sweep.py: one file a program, numbered, in an order that the sources decide.

extract.py hlo  OUT GITDIR...     HLO texts: raw strings of C++ (R"(...)"), .hlo files, .txt files with an HloModule
extract.py mlir OUT GITDIR...     functions of .mlir files: each part between `// -----` as often as it has public functions, each
                                  of them once as @main, with the others beside it

Reads HEAD of each git directory (a bare one or .git).  Texts that are there twice are written once; templates ($0) are left out.
The programs are of others: they are never committed."""
import hashlib
import os
import re
import subprocess
import sys

RAW = re.compile(r'R"([^()\\\s]{0,16})\((.*?)\)\1"', re.S)
TEMPLATE = re.compile(r"\$\d|\$\{")
FUNCTION = re.compile(r'^([ \t]*func\.func[ \t]+)(public[ \t]+|private[ \t]+|nested[ \t]+)?@("[^"]+"|[\w.$-]+)', re.M)
DIALECT = re.compile(r"\b(stablehlo|chlo|mhlo|vhlo|sdy)\.")


def files(gitdir, endings):
    """(name, text) of the files of HEAD, in the order of their names; those a partial copy lacks are left out."""
    names = {}
    for line in subprocess.run(["git", "-C", gitdir, "ls-tree", "-r", "HEAD"], capture_output=True, text=True, check=True).stdout.splitlines():
        (_, kind, blob), name = line.split("\t")[0].split(), line.split("\t")[1]
        if kind == "blob" and name.endswith(endings):
            names[name] = blob
    reader = subprocess.Popen(["git", "-C", gitdir, "cat-file", "--batch"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    for name in sorted(names):
        reader.stdin.write(names[name].encode() + b"\n")
        reader.stdin.flush()
        head = reader.stdout.readline().split()
        if head[1] == b"missing":
            continue
        data = reader.stdout.read(int(head[2]) + 1)[:-1]
        yield name, data.decode("utf-8", "replace")
    reader.stdin.close()
    reader.wait()


def hlo_texts(gitdir):
    """(file, program, what tells it from others)."""
    for name, text in files(gitdir, (".cc", ".h", ".hlo", ".txt")):
        if name.endswith((".cc", ".h")):
            found = [m[2] for m in RAW.finditer(text)]
        else:
            found = re.split(r"^// -----.*$", text, flags=re.M)
        for program in found:
            if re.search(r"^\s*HloModule\b|^\s*ENTRY\b", program, re.M) and not TEMPLATE.search(program):
                yield name, program, program


def as_main(text, name):
    """`text` with its function `name` as the public @main; who was @main is @main_before."""
    plain = name.strip('"')

    def other(match):
        return {"main": "@main_before" if plain != "main" else "@main", plain: "@main"}.get(match[1].strip('"'), match[0])

    text = re.sub(r'@("[^"\n]+"|[\w.$-]+)', other, text)
    return FUNCTION.sub(lambda m: f"{m[1]}public @main" if m[3] == "main" else m[0], text)


def mlir_functions(gitdir):
    """As hlo_texts; a function that calls none is told from others by its own text."""
    for name, text in files(gitdir, (".mlir",)):
        for part in re.split(r"^[ \t]*// -----.*$", text, flags=re.M):
            if not DIALECT.search(part):
                continue
            found = list(FUNCTION.finditer(part))
            for match, following in zip(found, found[1:] + [None]):
                alone = part[match.start():following.start() if following else len(part)]
                if (match[2] or "public").strip() == "public":
                    yield name, as_main(part, match[3]), part if alone.count("@") > 1 else alone


def main():
    kind, out, gitdirs = sys.argv[1], sys.argv[2], sys.argv[3:]
    programs = hlo_texts if kind == "hlo" else mlir_functions
    os.makedirs(out, exist_ok=True)
    seen = set()
    for gitdir in gitdirs:
        for name, text, what in programs(gitdir):
            digest = hashlib.sha256(" ".join(re.sub(r"//.*", "", what).split()).encode()).digest()
            if digest in seen:
                continue
            seen.add(digest)
            with open(os.path.join(out, f"{len(seen):05d}.{kind}"), "w", encoding="utf-8") as f:
                f.write(f"// {name}\n{text}")
    print(f"{len(seen)} programs")


main()
