/* codegen/emit/columns.c -- one column of a kernel of columns: where its elements
 * lie, and the results made of its sums. */
#include <config.h>

#include "codegen/emit/emit.h"

const gen_index *gen_columns_index(gen_emit *e, const gen_columns *form, gen_affine kept, const gen_affine *at)
{
  gen_index *idx = gen_index_new(e, form->in->rank);
  int64_t stride = 1;

  for (int d = form->in->rank - 1; d >= 0; d--) {
    int64_t size = form->in->dims[d];
    if (form->reduced[d]) {
      idx->d[d] = size > 1 ? at[d] : gen_affine_const(0);
    } else {
      idx->d[d] = gen_affine_digit(e, kept, stride, size);
      stride *= size;
    }
  }
  return gen_index_seal(idx);
}

weft_status *gen_columns_finish(gen_frame *f, gen_emit *e, gen_affine kept, const gen_acc *accs, int count,
                                gen_value *v)
{
  int mark = gen_memo_push(e);

  for (int i = 0; i < count; i++) {
    v[i] = gen_acc_result(e, &accs[i], v[i]);
    if (accs[i].leaf == 0)
      WEFT_TRY(gen_env_bind(e, &f->env, accs[i].reduce, (gen_source){.kind = GEN_SOURCE_VALUE, .values = &v[i]}));
  }
  WEFT_TRY(gen_store_results(f, e, kept));
  f->env.bound_count = 0;
  gen_memo_pop(e, mark);
  return NULL;
}
