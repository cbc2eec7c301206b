libweftcore_la_SOURCES += \
  %D%/accumulate.c \
  %D%/callback.c \
  %D%/codegen.h %D%/codegen_internal.h \
  %D%/column.c \
  %D%/compile.c \
  %D%/complex.c \
  %D%/cost.c \
  %D%/elemental.c \
  %D%/elementwise.c \
  %D%/extreme.c \
  %D%/index.c \
  %D%/ir.c \
  %D%/jit.c %D%/jit.h \
  %D%/kernel.c \
  %D%/math.c \
  %D%/memory.c \
  %D%/nest.c \
  %D%/part.c \
  %D%/region.c \
  %D%/row.c \
  %D%/small_loop.c \
  %D%/target.c \
  %D%/transpose.c \
  %D%/update.c
