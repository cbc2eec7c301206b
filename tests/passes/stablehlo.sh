#!/bin/sh
# The self-checking StableHLO programs, run by the reference evaluator after the CPU pipeline.  Constants are not folded:
# the programs are made of nothing else.
CONFORMANCE_PASSES=1 CONFORMANCE_DISABLED=constant-folding exec "$WEFT_BUILDDIR/tests/stablehlo/conformance_test"
