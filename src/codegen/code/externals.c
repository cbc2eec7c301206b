/* codegen/code/externals.c -- the C functions that generated code may call. */
#include <config.h>

#include <math.h>
#include <string.h>

#include "codegen/code/code.h"

#define LIBM(X) X(acos) X(acosh) X(asin) X(asinh) X(atan) X(atan2) X(atanh) X(cbrt) X(cos) X(cosh) X(erf) X(exp) X(expm1) \
  X(log) X(log1p) X(pow) X(sin) X(sinh) X(tan) X(tanh) X(fmod) X(floor) X(ceil) X(round) X(rint) X(trunc) X(fma)
#define LIBM_PAIR(g) {#g, (void (*)(void))g}, {#g "f", (void (*)(void))g##f},
#pragma GCC diagnostic ignored "-Wcast-function-type"
const gen_external gen_externals[] = {
  LIBM(LIBM_PAIR)
  {"memcpy", (void (*)(void))memcpy}, {"memmove", (void (*)(void))memmove}, {"memset", (void (*)(void))memset},
  {"roundeven", (void (*)(void))rint}, {"roundevenf", (void (*)(void))rintf},
};
const int gen_external_count = (int)WEFT_COUNT(gen_externals);
