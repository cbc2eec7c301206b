libweftcore_la_SOURCES += \
  %D%/algebraic.h %D%/algebraic_elementwise.c %D%/algebraic_range.c %D%/algebraic_reduce.c %D%/algebraic_shape.c %D%/algebraic_simplifier.c \
  %D%/batch_norm_expander.c \
  %D%/build.c %D%/build.h \
  %D%/call_inliner.c \
  %D%/collective_combiner.c \
  %D%/conditional_simplifier.c \
  %D%/conv_blocks.c %D%/conv_canonicalizer.c %D%/convolution.h \
  %D%/constant_folding.c \
  %D%/cse.c \
  %D%/copy_insertion.c %D%/dce.c \
  %D%/dim_orders.c %D%/dot_canonicalizer.c \
  %D%/dot_expander.c %D%/dot_groups.c %D%/dot_joins.c %D%/dot_parts.c \
  %D%/dynamic_dimensions.c \
  %D%/elementwise_expander.c \
  %D%/erfc.c \
  %D%/eigenvalues.c %D%/features_last.c %D%/flatten.c \
  %D%/scopes.c %D%/scopes.h \
  %D%/fusion.c %D%/fusion.h \
  %D%/fusion_kind.c \
  %D%/conv_patches.c %D%/library_dots.c %D%/library_epilogues.c %D%/library_linalg.c %D%/triangular_calls.c %D%/licm.c \
  %D%/loop_pairs.c \
  %D%/map_inliner.c \
  %D%/multi_output_fusion.c \
  %D%/async_expander.c %D%/no_ops.c %D%/one_form.c \
  %D%/narrow_weights.c %D%/normalize_layouts.c \
  %D%/pass.c %D%/pass.h %D%/passes.h \
  %D%/pipeline.h %D%/pipeline_common.c %D%/pipeline_cpu.c %D%/pipeline_gpu.c \
  %D%/reduce_splitter.c %D%/reduce_window_rewriter.c \
  %D%/regions.c \
  %D%/rng_expander.c \
  %D%/scan_expander.c %D%/scatter_sorter.c \
  %D%/schedule.c \
  %D%/element_loops.c \
  %D%/small_loops.c \
  %D%/sort_simplifier.c %D%/strategies.c %D%/dot_rounding.c %D%/strip_groups.c %D%/strips.c \
  %D%/custom_partitioner.h %D%/spmd/axes.c %D%/spmd/axes.h %D%/spmd/custom.c %D%/spmd/custom.h %D%/spmd/rule.c \
  %D%/spmd/edges.c %D%/spmd/edges.h %D%/spmd/parts.c %D%/spmd/parts.h \
  %D%/spmd/factors.c %D%/spmd/factors.h %D%/spmd/one_partition.c %D%/spmd/one_partition.h \
  %D%/spmd/partition.c %D%/spmd/partition.h \
  %D%/spmd/propagate.c %D%/spmd/propagate.h %D%/spmd/reshard.c %D%/spmd/reshard.h %D%/spmd/spmd.c %D%/spmd/tiling.c \
  %D%/spmd/tiling.h \
  %D%/tuple_simplifier.c \
  %D%/util.c %D%/util.h \
  %D%/while_loop.c %D%/while_loop.h \
  %D%/while_simplifier.c \
  %D%/wrap.c \
  %D%/zero_sized.c
