#!/bin/sh
# Makes the documentation site of a finished build: `make docs` runs it in the build folder.
#
#   make_site.sh SOURCE BUILD     the site goes to BUILD/site/
#
# The pages are the Markdown files of the repository; the page of settings is made of `weft info --json`. Tool: mkdocs with its
# material theme, from PATH or from WEFT_DOCS_TOOLS (a virtual environment, made there when it is absent; default
# ~/.cache/weft/docs-tools).
set -eu
source=$1 build=$2
tools=${WEFT_DOCS_TOOLS:-$HOME/.cache/weft/docs-tools}
pages=$build/site-pages
export PATH="$tools/bin:$PATH"
python3 -c 'import material' 2>/dev/null && command -v mkdocs >/dev/null ||
  { python3 -m venv "$tools" && "$tools/bin/pip" install -q mkdocs mkdocs-material; }

rm -rf "$pages" "$build/site"
mkdir -p "$pages/docs" "$pages/examples"
cp -R "$source/docs/." "$pages/docs"
cp -R "$source/examples/." "$pages/examples"
cp "$source/README.md" "$source/HACKING.md" "$source/SECURITY.md" "$source/LICENSE" "$pages"
(cd "$source" && find src tests -name README.md) | while read -r page; do
  mkdir -p "$pages/${page%/*}"
  cp "$source/$page" "$pages/$page"
done
chmod -R u+w "$pages"

"$build/weft" info --json | python3 -c '
import json, sys
settings = json.load(sys.stdin)["settings"]
print("# Settings\n\nEach setting is an environment variable. `weft info` prints the values that are set.")
for module in dict.fromkeys(s["module"] for s in settings):
    print(f"\n## {module}\n\n| setting | type | default | allowed | meaning |\n|---|---|---|---|---|")
    for s in settings:
        if s["module"] == module:
            cells = ["`" + s["name"] + "`", s["type"], s["default"] or "–", s.get("allowed", ""), s["help"]]
            print("| " + " | ".join(c.replace("|", "\\|") for c in cells) + " |")
' >"$pages/docs/settings.md"

cat >"$pages/site.css" <<END
.md-grid { max-width: 84rem }
.md-typeset td code, .md-typeset th code { white-space: nowrap; word-break: normal }
.md-typeset table:not([class]) th, .md-typeset table:not([class]) td { min-width: 0; padding: .5em .6em; font-size: .6rem }
.md-typeset table:not([class]) thead:not(:has(th:not(:empty))) { display: none } /* tables without a head */
.md-typeset pre > code { font-size: .76em }
END

cat >"$build/mkdocs.yml" <<END
site_name: Weft
docs_dir: $pages
site_dir: $build/site
use_directory_urls: false
theme: {name: material, font: false, features: [navigation.sections, content.code.copy, toc.follow]}
extra_css: [site.css]
markdown_extensions: [tables, fenced_code, toc]
validation: {links: {not_found: ignore, unrecognized_links: ignore}}
nav:
  - Start: README.md
  - Tutorial: docs/tutorial.md
  - Use:
    - Install: docs/install.md
    - JAX: docs/jax.md
    - Python without JAX: docs/python.md
    - C: docs/c.md
    - GPUs: docs/cuda.md
    - Machine code ahead of time: docs/aot.md
    - Many processes: docs/coordination.md
    - Collectives: docs/collectives.md
    - Debug a hang: docs/hang.md
    - Profile, and make it fast: docs/performance.md
    - Many cores: docs/scaling.md
    - Save memory: docs/memory.md
    - Security: docs/security.md
    - Settings: docs/settings.md
    - Errors: docs/errors.md
  - Reference:
    - Architecture: docs/architecture.md
    - Operations and element types: docs/operations.md
    - What is not supported: docs/unimplemented.md
    - Hacking: HACKING.md
    - Testing: docs/testing.md
    - Roadmap: docs/roadmap.md
  - Measured:
    - Programs: docs/measured/programs.md
    - Programs, with AMX: docs/measured/programs-amx.md
    - Programs, without AVX-512: docs/measured/programs-avx2.md
    - Libraries: docs/measured/libraries.md
    - Convolutions: docs/measured/convolutions.md
    - Convolutions, without AVX-512: docs/measured/convolutions-avx2.md
    - Before the device layer: docs/measured/device-layer.md
    - On a GPU: docs/measured/gpu.md
    - Peers: docs/measured/peers.md
    - Peers, with AMX: docs/measured/peers-amx.md
    - Peers, without AVX-512: docs/measured/peers-avx2.md
    - Peers that keep to AVX512_BF16: docs/measured/peers-isa-avx512-bf16.md
    - Peers that keep to AVX2: docs/measured/peers-isa-avx2.md
    - Loops over workers: docs/measured/pool.md
    - Collectives: docs/measured/collectives.md
    - Collectives, by hand: docs/measured/collectives-by-hand.md
    - Collectives, simulated: docs/measured/collectives-simulated.md
    - Coordination: docs/measured/coordination.md
    - Coordination, 4096 tasks: docs/measured/coordination-by-hand.md
    - Partitions: docs/measured/partitions.md
    - Temporaries: docs/measured/temporaries.md
END
NO_MKDOCS_2_WARNING=1 mkdocs build -q -f "$build/mkdocs.yml"
echo "$build/site/index.html"
