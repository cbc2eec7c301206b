# src/stablehlo: see README.md in this folder.
libweftcore_la_SOURCES += \
  %D%/bytecode.c %D%/bytecode.h %D%/constraints.c %D%/lower.c %D%/lower.h %D%/lower_chlo.c %D%/lower_comm.c %D%/lower_dynamic.c \
  %D%/lower_loc.c %D%/lower_ops.c %D%/lower_quant.c %D%/lower_refused.c %D%/lower_repeat.c %D%/lower_sdy.c %D%/lower_shapes.c %D%/mlir.c %D%/mlir.h %D%/mlir_loc.c %D%/mlir_pretty.c %D%/mlir_sdy.c \
  %D%/mlir_attrs.c %D%/mlir_text.c %D%/mlir_text.h %D%/mlir_types.c %D%/print.c %D%/print.h %D%/print_attrs.c %D%/raise.c %D%/raise.h %D%/raise_build.c %D%/raise_comm.c %D%/raise_loc.c \
  %D%/raise_ops.c %D%/stablehlo.h %D%/vhlo.c
