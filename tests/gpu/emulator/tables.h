/* tests/gpu/emulator/tables.h -- the vocabulary of PTX as the emulator knows it: types, instructions, modifiers,
 * special registers.  The lexer knows none of these; the parser and the interpreter read them only from here. */
#ifndef WEFT_EMU_TABLES_H
#define WEFT_EMU_TABLES_H

/* X(enumerator, name, bytes) */
#define PTX_TYPES(X) \
  X(PRED, "pred", 1) X(B8, "b8", 1) X(B16, "b16", 2) X(B32, "b32", 4) X(B64, "b64", 8) X(U8, "u8", 1) X(U16, "u16", 2) \
  X(U32, "u32", 4) X(U64, "u64", 8) X(S8, "s8", 1) X(S16, "s16", 2) X(S32, "s32", 4) X(S64, "s64", 8) X(F16, "f16", 2) \
  X(BF16, "bf16", 2) X(TF32, "tf32", 4) X(F32, "f32", 4) X(F64, "f64", 8) X(F16X2, "f16x2", 4) X(BF16X2, "bf16x2", 4) \
  X(E4M3X2, "e4m3x2", 2) X(E5M2X2, "e5m2x2", 2)

/* X(name, form, flags): the form says how operands are written; the flags are the modifiers of the table below that
 * may follow the name.  Instructions of which the emulator needs only the name have the form SKIP. */
#define PTX_OPS(X) \
  X(add, PLAIN, FTZ | SAT | CC) X(sub, PLAIN, FTZ | SAT | CC) X(mul, PLAIN, FTZ | SAT) X(mad, PLAIN, FTZ | SAT | CC) \
  X(mul24, PLAIN, 0) X(mad24, PLAIN, 0) X(sad, PLAIN, 0) X(fma, PLAIN, FTZ | SAT | RELU) X(div, PLAIN, FTZ | APPROX | FULL) \
  X(rem, PLAIN, 0) X(abs, PLAIN, FTZ) X(neg, PLAIN, FTZ) X(min, PLAIN, FTZ | NAN | XORSIGN | RELU) \
  X(max, PLAIN, FTZ | NAN | XORSIGN | RELU) X(and, PLAIN, 0) X(or, PLAIN, 0) X(xor, PLAIN, 0) X(not, PLAIN, 0) \
  X(cnot, PLAIN, 0) X(shl, PLAIN, 0) X(shr, PLAIN, 0) X(shf, PLAIN, LEFT | WRAP) X(popc, PLAIN, 0) X(clz, PLAIN, 0) \
  X(brev, PLAIN, 0) X(bfe, PLAIN, 0) X(bfi, PLAIN, 0) X(bfind, PLAIN, SHIFTAMT) X(prmt, PLAIN, 0) X(lop3, PLAIN, 0) \
  X(fns, PLAIN, 0) X(szext, PLAIN, WRAP) X(bmsk, PLAIN, WRAP) X(dp4a, PLAIN, 0) X(dp2a, PLAIN, 0) X(addc, PLAIN, CC) \
  X(subc, PLAIN, CC) X(madc, PLAIN, CC) X(setp, PLAIN, FTZ) X(set, PLAIN, FTZ) X(selp, PLAIN, 0) X(slct, PLAIN, FTZ) \
  X(mov, PLAIN, 0) X(cvt, PLAIN, FTZ | SAT | RELU | SATFINITE) X(cvta, PLAIN, TO) X(isspacep, PLAIN, 0) \
  X(rcp, PLAIN, FTZ | APPROX) X(sqrt, PLAIN, FTZ | APPROX) X(rsqrt, PLAIN, FTZ | APPROX) X(ex2, PLAIN, FTZ | APPROX) \
  X(lg2, PLAIN, FTZ | APPROX) X(sin, PLAIN, FTZ | APPROX) X(cos, PLAIN, FTZ | APPROX) X(tanh, PLAIN, APPROX) \
  X(copysign, PLAIN, 0) X(testp, PLAIN, 0) X(ld, LOAD, 0) X(ldu, LOAD, 0) X(st, STORE, 0) X(atom, ATOMIC, FTZ | NOFTZ) \
  X(red, REDUCE, FTZ | NOFTZ) X(membar, BARE, 0) X(fence, BARE, 0) X(shfl, PLAIN, 0) X(vote, PLAIN, 0) X(match, PLAIN, 0) \
  X(redux, PLAIN, 0) X(activemask, PLAIN, 0) X(elect, PLAIN, 0) X(bar, BARRIER, ALIGNED) X(barrier, BARRIER, ALIGNED) \
  X(bra, BRANCH, 0) X(brx, INDEXED, 0) X(call, CALL, 0) X(ret, BARE, 0) X(exit, BARE, 0) X(trap, BARE, 0) X(brkpt, BARE, 0) \
  X(nanosleep, SKIP, 0) X(prefetch, SKIP, 0) X(prefetchu, SKIP, 0) X(discard, SKIP, 0) X(applypriority, SKIP, 0) \
  X(griddepcontrol, SKIP, 0) X(pmevent, SKIP, 0) X(cp, COPY, 0) X(ldmatrix, LOAD, TRANS) X(mma, PLAIN, SATFINITE) \
  X(multimem, MULTI, ACC32) \
  X(copy_param, NONE, 0) X(set_conditional, NONE, 0)

/* X(class, name, field, value): a modifier sets one field of the decoded instruction.  A name whose meaning depends
 * on the instruction has several rows, told apart by the class of the instruction (ptx_class in statement.c). */
#define PTX_MODIFIERS(X) \
  X(ANY, "rn", round, PTX_RN) X(ANY, "rz", round, PTX_RZ) X(ANY, "rm", round, PTX_RM) X(ANY, "rp", round, PTX_RP) \
  X(ANY, "rni", round, PTX_RNI) X(ANY, "rzi", round, PTX_RZI) X(ANY, "rmi", round, PTX_RMI) X(ANY, "rpi", round, PTX_RPI) \
  X(ANY, "rna", round, PTX_RNA) X(ANY, "global", space, PTX_GLOBAL) X(ANY, "shared", space, PTX_SHARED) \
  X(ANY, "shared::cta", space, PTX_SHARED) X(ANY, "local", space, PTX_LOCAL) X(ANY, "param", space, PTX_PARAM) \
  X(ANY, "const", space, PTX_CONST) X(ANY, "v2", vec, 2) X(ANY, "v4", vec, 4) X(ANY, "v8", vec, 8) \
  X(ANY, "volatile", sem, PTX_RELAXED) X(ANY, "relaxed", sem, PTX_RELAXED) X(ANY, "mmio", sem, PTX_RELAXED) \
  X(ANY, "acquire", sem, PTX_ACQUIRE) X(ANY, "release", sem, PTX_RELEASE) X(ANY, "acq_rel", sem, PTX_ACQ_REL) \
  X(ANY, "cta", scope, PTX_OF_BLOCK) X(ANY, "cluster", scope, PTX_OF_BLOCK) X(ANY, "gpu", scope, PTX_OF_DEVICE) \
  X(ANY, "gl", scope, PTX_OF_DEVICE) X(ANY, "sys", scope, PTX_OF_SYSTEM) X(ANY, "sc", sem, PTX_ACQ_REL) X(ANY, "weak", sem, PTX_WEAK) \
  X(COMPARE, "eq", cmp, PTX_EQ) X(COMPARE, "ne", cmp, PTX_NE) X(COMPARE, "lt", cmp, PTX_LT) X(COMPARE, "le", cmp, PTX_LE) \
  X(COMPARE, "gt", cmp, PTX_GT) X(COMPARE, "ge", cmp, PTX_GE) X(COMPARE, "lo", cmp, PTX_LT) X(COMPARE, "ls", cmp, PTX_LE) \
  X(COMPARE, "hi", cmp, PTX_GT) X(COMPARE, "hs", cmp, PTX_GE) X(COMPARE, "equ", cmp, PTX_EQU) X(COMPARE, "neu", cmp, PTX_NEU) \
  X(COMPARE, "ltu", cmp, PTX_LTU) X(COMPARE, "leu", cmp, PTX_LEU) X(COMPARE, "gtu", cmp, PTX_GTU) \
  X(COMPARE, "geu", cmp, PTX_GEU) X(COMPARE, "num", cmp, PTX_NUM) X(COMPARE, "nan", cmp, PTX_NANS) \
  X(COMPARE, "and", combine, PTX_AND) X(COMPARE, "or", combine, PTX_OR) X(COMPARE, "xor", combine, PTX_XOR) \
  X(MULTIPLY, "lo", mode, PTX_LO) X(MULTIPLY, "hi", mode, PTX_HI) X(MULTIPLY, "wide", mode, PTX_WIDE) \
  X(ATOMIC, "add", atomic, PTX_ADD) X(ATOMIC, "min", atomic, PTX_MIN) X(ATOMIC, "max", atomic, PTX_MAX) \
  X(ATOMIC, "and", atomic, PTX_AND) X(ATOMIC, "or", atomic, PTX_OR) X(ATOMIC, "xor", atomic, PTX_XOR) \
  X(ATOMIC, "exch", atomic, PTX_EXCH) X(ATOMIC, "cas", atomic, PTX_CAS) X(ATOMIC, "inc", atomic, PTX_INC) \
  X(ATOMIC, "dec", atomic, PTX_DEC) X(ATOMIC, "popc", atomic, PTX_POPC) \
  X(ATOMIC, "arrive", mode, PTX_BAR_ARRIVE) X(ATOMIC, "red", mode, PTX_BAR_RED) X(ATOMIC, "warp", mode, PTX_BAR_WARP) \
  X(SHUFFLE, "idx", mode, PTX_IDX) X(SHUFFLE, "up", mode, PTX_UP) X(SHUFFLE, "down", mode, PTX_DOWN) \
  X(SHUFFLE, "bfly", mode, PTX_BFLY) X(SHUFFLE, "all", mode, PTX_ALL) X(SHUFFLE, "any", mode, PTX_ANY) \
  X(SHUFFLE, "uni", mode, PTX_UNI) X(SHUFFLE, "ballot", mode, PTX_BALLOT) \
  X(PERMUTE, "f4e", mode, 1) X(PERMUTE, "b4e", mode, 2) X(PERMUTE, "rc8", mode, 3) X(PERMUTE, "ecl", mode, 4) \
  X(PERMUTE, "ecr", mode, 5) X(PERMUTE, "rc16", mode, 6) X(PERMUTE, "lo", mode, PTX_LO) X(PERMUTE, "hi", mode, PTX_HI) \
  X(MULTICAST, "ld_reduce", mode, PTX_MULTI_LOAD) X(MULTICAST, "st", mode, PTX_MULTI_STORE) X(MULTICAST, "red", mode, PTX_MULTI_RED) \
  X(MULTICAST, "add", atomic, PTX_ADD) X(MULTICAST, "min", atomic, PTX_MIN) X(MULTICAST, "max", atomic, PTX_MAX) \
  X(MULTICAST, "and", atomic, PTX_AND) X(MULTICAST, "or", atomic, PTX_OR) X(MULTICAST, "xor", atomic, PTX_XOR) \
  X(FENCE, "alias", mode, PTX_FENCE_ALIAS) \
  X(INDEX, "idx", mode, 0) X(TEST, "finite", mode, 0) X(TEST, "infinite", mode, 1) X(TEST, "number", mode, 2) X(TEST, "notanumber", mode, 3) \
  X(TEST, "normal", mode, 4) X(TEST, "subnormal", mode, 5) \
  X(MATRIX, "m16n8k4", mode, 4) X(MATRIX, "m16n8k8", mode, 8) X(MATRIX, "m16n8k16", mode, 16) X(MATRIX, "m16n8k32", mode, 32) \
  X(MATRIX, "x1", vec, 1) X(MATRIX, "x2", vec, 2) X(MATRIX, "x4", vec, 4) X(MATRIX, "m8n8", mode, 1) \
  X(COPY, "async", mode, PTX_CP_COPY) X(COPY, "commit_group", mode, PTX_CP_COMMIT) X(COPY, "wait_group", mode, PTX_CP_WAIT) \
  X(COPY, "wait_all", mode, PTX_CP_WAIT)

/* X(name, flag): modifiers that are on or off; the row of an instruction in PTX_OPS lists the ones that it takes. */
#define PTX_FLAGS(X) \
  X("ftz", FTZ) X("sat", SAT) X("cc", CC) X("approx", APPROX) X("full", FULL) X("NaN", NAN) X("relu", RELU) \
  X("satfinite", SATFINITE) X("xorsign", XORSIGN) X("wrap", WRAP) X("l", LEFT) X("to", TO) X("aligned", ALIGNED) \
  X("shiftamt", SHIFTAMT) X("acc::f32", ACC32) X("noftz", NOFTZ) X("trans", TRANS)

/* Modifiers that change nothing here: cache hints, and words for what the
 * instruction does anyway, such as `sync`. */
#define PTX_IGNORED \
  "nc", "ca", "cg", "cs", "lu", "cv", "wb", "wt", "sync", "uni", "level", "clamp", "r", "abs", \
  "row", "col", "b4", "proxy", "full_range", "L1::evict_first", "L1::evict_last", "L1::evict_normal", "L1::no_allocate", \
  "L1::evict_unchanged", "L2::evict_first", "L2::evict_last", "L2::evict_normal", "L2::cache_hint", "L2::64B", "L2::128B", "L2::256B"

/* X(enumerator, name): special registers; every warp has a row for each. */
#define PTX_SREGS(X) \
  X(ZERO_SINK, "") X(CARRY, "") X(DYNAMIC, "") X(TID_X, "%tid.x") X(TID_Y, "%tid.y") X(TID_Z, "%tid.z") X(NTID_X, "%ntid.x") \
  X(NTID_Y, "%ntid.y") X(NTID_Z, "%ntid.z") X(CTAID_X, "%ctaid.x") X(CTAID_Y, "%ctaid.y") X(CTAID_Z, "%ctaid.z") \
  X(NCTAID_X, "%nctaid.x") X(NCTAID_Y, "%nctaid.y") X(NCTAID_Z, "%nctaid.z") X(LANEID, "%laneid") X(WARPID, "%warpid") \
  X(NWARPID, "%nwarpid") X(WARP_SZ, "WARP_SZ") X(SMID, "%smid") X(NSMID, "%nsmid") X(CLOCK, "%clock") X(CLOCK64, "%clock64") \
  X(GLOBALTIMER, "%globaltimer") X(LT, "%lanemask_lt") X(LE, "%lanemask_le") X(EQ, "%lanemask_eq") X(GE, "%lanemask_ge") \
  X(GT, "%lanemask_gt") X(DYN_SIZE, "%dynamic_smem_size") X(TOTAL_SIZE, "%total_smem_size")

#endif
