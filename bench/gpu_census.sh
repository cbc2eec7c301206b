#!/bin/sh
# bench/gpu_census.sh PROGRAM... -- which steps of the programs have a kernel on a GPU: a table in Markdown, by
# `weft inspect --target`.  WEFT names the command; TARGET the GPU (H200).
weft=${WEFT:-weft} target=${TARGET:-H200}
echo "| program | kernels | fusions without one | other steps | least time |"
echo "|---|---|---|---|---|"
for program; do
  out=$(timeout 300 "$weft" inspect "$program" --target "$target" 2>&1) || {
    echo "| $(basename "$program") | | $(echo "$out" | tail -n 1 | cut -c 1-200) | | |"
    continue
  }
  echo "$out" | awk -v name="$(basename "$program")" '
    / without one, / { kernels = $1; refused = $3; us = $(NF - 4) }
    /^no kernel: / { steps = steps (steps ? ", " : "") $3 " " $4 }
    END { print "| " name " | " kernels " | " refused " | " steps " | " us " us |" }'
done
