libweftcore_la_SOURCES += \
  %D%/hlo.c %D%/literal.c %D%/opcode.c %D%/query.c %D%/shape.c \
  %D%/eval.h %D%/hlo.h %D%/infer.h %D%/literal.h %D%/opcode.h %D%/opcodes.def %D%/proto.h %D%/shape.h %D%/text.h
