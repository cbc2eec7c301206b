libweftcore_la_SOURCES += \
  %D%/callback.c \
  %D%/codegen.h %D%/codegen_internal.h \
  %D%/compile.c \
  %D%/complex.c \
  %D%/elemental.c \
  %D%/elementwise.c \
  %D%/index.c \
  %D%/ir.c \
  %D%/jit.c %D%/jit.h \
  %D%/kernel.c \
  %D%/math.c \
  %D%/memory.c \
  %D%/nest.c \
  %D%/part.c \
  %D%/target.c \
  %D%/update.c
