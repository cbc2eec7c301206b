"""Tables and plots of the benchmarks: Markdown with one line on machine, command and commit; a plot of ratios as SVG.

A benchmark adds the two options with `add_options(parser)`, collects a `Table`, and calls `table.write(args)` at its end.  The
pages in docs/measured are made in this way, so that no measured figure is typed by hand.
"""
import math
import os
import platform
import shlex
import subprocess
import sys
import xml.sax.saxutils

HERE = os.path.dirname(os.path.abspath(__file__))
FEATURES = ("avx2", "avx512f", "avx512_bf16", "avx512_vnni", "avx512_fp16", "amx_tile")  # what decides between kernels


def geometric_mean(values):
    """Of the values that are finite and above 0; NaN if there is none."""
    logs = [math.log(v) for v in values if v and 0 < v < math.inf]
    return math.exp(sum(logs) / len(logs)) if logs else math.nan


def machine():
    """The processor's name, what it can do, the number of cores and how busy they are."""
    fields = {}
    with open("/proc/cpuinfo") as f:
        for line in f:
            key, _, value = line.partition(":")
            fields.setdefault(key.strip(), value.strip())
    flags = set(fields.get("flags", "").split())
    can = " ".join(f for f in FEATURES if f in flags)
    family = f"family {fields['cpu family']} model {fields['model']}" if "cpu family" in fields else platform.machine()
    return f"{fields.get('model name', platform.machine())} ({family}; {can}), {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"


def commit():
    done = subprocess.run(["git", "-C", HERE, "describe", "--always", "--dirty", "--abbrev=8"], capture_output=True, text=True)
    return done.stdout.strip() or "unknown"


def command():
    short = [os.path.relpath(a) if os.path.isabs(a) and a.startswith(os.getcwd()) else a for a in sys.argv]
    programs = [a for a in short[1:] if a.endswith(".hlo")]
    shown = [a for a in short if a not in programs] + ([f"({len(programs)} programs)"] if programs else [])
    return " ".join(a if a.startswith("(") else shlex.quote(a) for a in shown)


def add_options(parser):
    parser.add_argument("--markdown", metavar="FILE", help="write the table to FILE, with machine, command and commit")
    parser.add_argument("--svg", metavar="FILE", help="write a plot of the ratios to FILE")


class Table:
    """Rows of text under `columns`; `plot` names the column whose numbers, ratios to a peer, make the plot."""

    def __init__(self, title, columns, plot=None):
        self.title, self.columns, self.plot = title, columns, plot
        self.rows, self.notes = [], []

    def add(self, *cells):
        assert len(cells) == len(self.columns), cells
        self.rows.append([str(c) for c in cells])

    def note(self, text):
        """A sentence under the table."""
        self.notes.append(text)

    def lines(self):
        yield "| " + " | ".join(self.columns) + " |"
        yield "|" + "---|" * len(self.columns)
        for row in self.rows:
            yield "| " + " | ".join(c.replace("|", "\\|") for c in row) + " |"

    def markdown(self, picture=None):
        text = [f"# {self.title}", "", f"Machine: {machine()}. Command: `{command()}`. Commit: {commit()}.", "", *self.lines()]
        for note in self.notes:
            text += ["", note]
        if picture:
            text += ["", f"![{self.title}]({picture})"]
        return "\n".join(text) + "\n"

    def ratios(self):
        """(name, ratio) of the rows that have one."""
        at = self.columns.index(self.plot)
        for row in self.rows:
            try:
                value = float(row[at])
            except ValueError:
                continue
            if 0 < value < math.inf:
                yield row[0], value

    def write(self, args):
        """What --markdown and --svg ask for."""
        if args.svg:
            with open(args.svg, "w") as f:
                f.write(bars(self.title, list(self.ratios())))
        if args.markdown:
            picture = os.path.relpath(args.svg, os.path.dirname(os.path.abspath(args.markdown))) if args.svg else None
            with open(args.markdown, "w") as f:
                f.write(self.markdown(picture))


def bars(title, ratios):
    """Horizontal bars from 1 on a logarithmic axis, the least ratio first: to the left Weft is better."""
    ratios = sorted(ratios, key=lambda item: item[1])
    left, width, step, top = 330, 460, 15, 56
    low = min([0.5] + [r for _, r in ratios])
    high = max([2.0] + [r for _, r in ratios])
    x = lambda r: left + width * (math.log(r) - math.log(low)) / (math.log(high) - math.log(low))
    height = top + step * len(ratios) + 12
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {left + width + 70} {height}" font-family="sans-serif" font-size="11">',
           f'<rect width="100%" height="100%" fill="#ffffff"/><text x="12" y="20" font-size="14">{xml.sax.saxutils.escape(title)}</text>',
           f'<text x="12" y="38" fill="#555555">ratio, logarithmic axis; left of 1 Weft is better</text>']
    tick = 10.0 ** math.floor(math.log10(low))
    while tick <= high:
        for factor in (1, 2, 5):
            if low <= tick * factor <= high:
                at = x(tick * factor)
                dark = "#333333" if tick * factor == 1 else "#dddddd"
                out.append(f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{top - 4}" y2="{height - 8}" stroke="{dark}"/>'
                           f'<text x="{at:.1f}" y="{top - 8}" text-anchor="middle" fill="#555555">{tick * factor:g}</text>')
        tick *= 10
    for i, (name, r) in enumerate(ratios):
        y, a, b = top + step * i, min(x(r), x(1)), max(x(r), x(1))
        out.append(f'<text x="{left - 8}" y="{y + 11}" text-anchor="end">{xml.sax.saxutils.escape(name)}</text>'
                   f'<rect x="{a:.1f}" y="{y + 2}" width="{max(b - a, 1):.1f}" height="{step - 4}" fill="{"#2a7f62" if r <= 1 else "#c0562f"}"/>'
                   f'<text x="{b + 4 if r > 1 else a - 4:.1f}" y="{y + 11}" text-anchor="{"start" if r > 1 else "end"}" fill="#333333">{r:.2f}</text>')
    return "\n".join(out + ["</svg>"]) + "\n"
