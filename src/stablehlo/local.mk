# src/stablehlo: see README.md in this folder.
libweftcore_la_SOURCES += \
  %D%/mlir.c %D%/mlir.h %D%/mlir_pretty.c %D%/mlir_text.c %D%/mlir_text.h
