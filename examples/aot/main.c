/* examples/aot/main.c -- runs the program of mlp.mlir, which `weft compile` has made a library of (docs/aot.md). */
#include <stdio.h>

#include "mlp.h"

static weft_status *run(void)
{
  static const float x[2][3] = {{1, 2, 3}, {-1, 0, 1}};
  static const float w[3][4] = {{1, 0, 0, 1}, {0, 1, 0, 1}, {0, 0, 1, -2}};
  static const float b[4] = {0, 0, 0, 1}, v[4][1] = {{1}, {10}, {100}, {1000}};
  WEFT_AUTO(weft_program) program = NULL;
  float y[2][1];

  WEFT_TRY(mlp_open(NULL, &program));
  WEFT_TRY(mlp_run(program, x, w, b, v, y, weft_deadline_after_ms(10000)));
  printf("%g %g\n", y[0][0], y[1][0]); /* 321 100 */
  return NULL;
}

int main(void)
{
  weft_status *st = run();

  if (!st) return 0;
  fprintf(stderr, "%s\n", weft_status_text(st, false));
  weft_status_free(st);
  return 1;
}
