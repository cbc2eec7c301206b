#include "test.h"

#include "harness.h"

#include "base/dtype.h"

static char text[8192];

/* A fusion whose computation is `body` (lines of instructions, the root marked), with parameters `params`. */
static const char *fusion(const char *params, const char *body, const char *result)
{
  char list[1024] = "", entry[2048] = "", *copy = strdup(params), *save = NULL;
  int n = 0;

  snprintf(text, sizeof text, "HloModule t\nf {\n");
  for (char *p = strtok_r(copy, " ", &save); p; p = strtok_r(NULL, " ", &save), n++) {
    snprintf(text + strlen(text), sizeof text - strlen(text), "  p%d = %s parameter(%d)\n", n, p, n);
    snprintf(entry + strlen(entry), sizeof entry - strlen(entry), "  a%d = %s parameter(%d)\n", n, p, n);
    snprintf(list + strlen(list), sizeof list - strlen(list), "%sa%d", n ? ", " : "", n);
  }
  free(copy);
  snprintf(text + strlen(text), sizeof text - strlen(text),
           "%s\n}\nENTRY e {\n%s  ROOT r = %s fusion(%s), kind=kLoop, calls=f\n}\n", body, entry, result, list);
  return text;
}

static const char *const shapes[] = {"[]", "[1]", "[7]", "[16]", "[100]", "[3,5]", "[4,1,33]"};

TEST(add_of_every_type_and_several_shapes)
{
  for (int t = 1; t < WEFT_DTYPE_COUNT; t++) {
    if (!weft_dtype_is_array((weft_dtype)t)) continue;
    for (size_t s = 0; s < WEFT_COUNT(shapes); s++) {
      char array[64], params[160], body[160];
      snprintf(array, sizeof array, "%s%s", weft_dtype_name((weft_dtype)t), shapes[s]);
      snprintf(params, sizeof params, "%s %s", array, array);
      snprintf(body, sizeof body, "  ROOT r = %s add(p0, p1)", array);
      check_kernel(fusion(params, body, array), NULL);
    }
  }
}

int main(void)
{
  const struct CMUnitTest units[] = {UNIT(add_of_every_type_and_several_shapes)};
  return cmocka_run_group_tests(units, NULL, NULL);
}
