# what loads and runs compiled code, without LLVM
libweftrun_la_SOURCES += \
  %D%/code/code.c %D%/code/code.h \
  %D%/code/externals.c \
  %D%/code/image.c \
  %D%/code/requests.c \
  %D%/code/saved.c \
  %D%/codegen.h \
  %D%/model/bound.c \
  %D%/model/columns.c \
  %D%/model/cost.c %D%/model/cost.h \
  %D%/model/element_loop.c \
  %D%/model/gpus.def \
  %D%/model/keys.c %D%/model/keys.h \
  %D%/model/library.c %D%/model/library.h \
  %D%/model/nest.c %D%/model/nest.h \
  %D%/model/processor.c %D%/model/processor.h \
  %D%/model/rows.c \
  %D%/model/scan.c \
  %D%/model/strategy.c %D%/model/strategy.h \
  %D%/model/target.c %D%/model/target.h \
  %D%/model/turned.c \
  %D%/model/view.c %D%/model/view.h \
  %D%/model/weights.c %D%/model/weights.h
libweftcore_la_SOURCES += \
  %D%/code/cache.c %D%/code/cache.h \
  %D%/emit/access.c \
  %D%/emit/accumulate.c \
  %D%/emit/columns.c \
  %D%/emit/complex.c \
  %D%/emit/dot.c \
  %D%/emit/element_loop.c \
  %D%/emit/elemental.c \
  %D%/emit/elementwise.c \
  %D%/emit/emit.h \
  %D%/emit/exact.c \
  %D%/emit/extreme.c \
  %D%/emit/format.c \
  %D%/emit/frame.c \
  %D%/emit/index.c \
  %D%/emit/ir.c \
  %D%/emit/lanes.c \
  %D%/emit/loop.c \
  %D%/emit/math.c \
  %D%/emit/part.c \
  %D%/emit/region.c \
  %D%/emit/rows.c \
  %D%/emit/small_loop.c \
  %D%/emit/update.c \
  %D%/host/callback.c \
  %D%/host/column.c \
  %D%/host/compile.c \
  %D%/host/dot.c \
  %D%/host/host.h \
  %D%/host/jit.c %D%/host/jit.h \
  %D%/host/kernel.c \
  %D%/host/lanes.c \
  %D%/host/link.c %D%/host/link.h \
  %D%/host/memory.c \
  %D%/host/nest.c \
  %D%/host/region.c \
  %D%/host/row.c \
  %D%/host/target.c \
  %D%/host/transpose.c \
  %D%/host/update.c \
  %D%/nvptx/block.c \
  %D%/nvptx/block_radix.c \
  %D%/nvptx/bytes.c \
  %D%/nvptx/columns.c \
  %D%/nvptx/grid.c %D%/nvptx/grid.h \
  %D%/nvptx/held.c \
  %D%/nvptx/join.c \
  %D%/nvptx/launch.c \
  %D%/nvptx/nvptx.h \
  %D%/nvptx/pivots.c \
  %D%/nvptx/ptx.c \
  %D%/nvptx/radix.c \
  %D%/nvptx/region.c \
  %D%/nvptx/rows.c \
  %D%/nvptx/scan.c \
  %D%/nvptx/scatter.c \
  %D%/nvptx/sort.c %D%/nvptx/sort.h \
  %D%/nvptx/sorted.c \
  %D%/nvptx/turn.c \
  %D%/nvptx/update.c \
  %D%/nvptx/weights.c
