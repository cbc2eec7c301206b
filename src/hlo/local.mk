libweftrun_la_SOURCES += \
  %D%/attributes.c %D%/attributes.def %D%/attributes.h %D%/check.c %D%/check.h \
  %D%/eval.c %D%/eval_collective.c %D%/eval_complex.c %D%/eval_dot.c %D%/eval_elem.c %D%/eval_fn.c %D%/eval_internal.h \
  %D%/eval_linalg.c %D%/eval_move.c %D%/eval_reduce.c %D%/eval_rng.c \
  %D%/frames.c %D%/frames.h %D%/grouping.c %D%/grouping.h %D%/hlo.c %D%/infer.c %D%/infer_control.c %D%/infer_linear.c %D%/infer_internal.h %D%/literal.c %D%/opcode.c \
  %D%/query.c %D%/shape.c %D%/sharding.c %D%/sharding.h %D%/verify.c \
  %D%/eval.h %D%/hlo.h %D%/infer.h %D%/literal.h %D%/opcode.h %D%/opcodes.def %D%/proto.h %D%/shape.h %D%/text.h \
  %D%/text_attrs.c %D%/text_cursor.c %D%/text_internal.h %D%/text_kinds.c %D%/text_kinds.h %D%/text_kinds_hlo.c %D%/text_literal.c %D%/text_parse.c %D%/text_print.c \
  %D%/text_shape.c %D%/text_sharding.c \
  %D%/proto_attrs.c %D%/proto_common.c %D%/proto_internal.h %D%/proto_read.c %D%/proto_read.h %D%/proto_shape.c %D%/proto_write.c \
  %D%/proto_write.h %D%/proto_write_attrs.c %D%/proto_write_shape.c

# Messages: protoc-c makes them in the build directory.
%D%/hlo.pb-c.c: %D%/hlo.proto
	@$(MKDIR_P) $(@D)
	$(AM_V_GEN)$(PROTOC_C) --proto_path=$(<D) --c_out=$(@D) $<
%D%/hlo.pb-c.h: %D%/hlo.pb-c.c
	@test -f $@
BUILT_SOURCES += %D%/hlo.pb-c.h
CLEANFILES += %D%/hlo.pb-c.c %D%/hlo.pb-c.h
nodist_libweftrun_la_SOURCES += %D%/hlo.pb-c.c
EXTRA_DIST += %D%/hlo.proto
EXTRA_DIST += %D%/README.md
