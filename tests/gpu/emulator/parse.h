/* tests/gpu/emulator/parse.h -- the parser's state, shared by the files that read PTX: module.c reads directives and
 * functions, statement.c reads instructions. */
#ifndef WEFT_EMU_PARSE_H
#define WEFT_EMU_PARSE_H

#include <setjmp.h>

#include "internal.h"
#include "lex.h"

typedef struct ptx_register {
  char *name;        /* of a range of registers: without the number */
  int count;         /* -1: one register of exactly that name */
  int first;
  ptx_type type;
} ptx_register;

typedef struct ptx_label { char *name; int at; bool table; } ptx_label;
typedef struct ptx_reference { char *name; int at, line; bool in_table; } ptx_reference;

/* A .func or .entry.  A device function has its arguments and results at fixed places of every thread's local
 * memory. */
typedef struct ptx_function {
  char *name;
  bool entry, has_body, on_path, checked;
  ptx_lexer body;
  ptx_variable *formals;
  int formal_count, formal_room, result_count;   /* the results are the first formals */
  int pc, return_row, max_threads;
  int *calls, call_count, call_room;
} ptx_function;

typedef struct ptx_parser {
  ptx_module *m;
  ptx_lexer lexer;
  ptx_token token;
  ptx_function *functions;
  int function_count, function_room;
  /* of the function that is being read */
  ptx_function *function;
  int function_index;
  ptx_kernel *kernel;         /* NULL in device functions */
  ptx_register *registers;
  int register_count, register_room;
  ptx_variable *locals;
  int local_count, local_room;
  ptx_label *labels;
  int label_count, label_room;
  ptx_reference *references;
  int reference_count, reference_room;
  int rows, preds;
  size_t local_bytes, shared_bytes;
  jmp_buf fail;
  char *error;
  size_t error_size;
} ptx_parser;

_Noreturn void ptx_bad(ptx_parser *p, const char *format, ...) __attribute__((format(printf, 2, 3)));
void *ptx_grow(ptx_parser *p, void *array, int count, int *room, size_t size); /* makes room for one more element */
#define PTX_PUSH(p, array, count, room) ((array) = ptx_grow((p), (array), (count), &(room), sizeof *(array)), &(array)[(count)++])
char *ptx_copy(ptx_parser *p, ptx_token t);

void ptx_next(ptx_parser *p);
bool ptx_is(const ptx_parser *p, const char *text); /* is the token this word or mark? */
bool ptx_take(ptx_parser *p, const char *text);
void ptx_want(ptx_parser *p, const char *text);
int64_t ptx_integer(ptx_parser *p);

ptx_type ptx_type_named(const char *name, size_t size);
const ptx_register *ptx_find_register(const ptx_parser *p, ptx_token t, int *row);
ptx_variable *ptx_find_variable(ptx_parser *p, ptx_token t);
int ptx_constant(ptx_parser *p, uint64_t value); /* returns an operand */
int ptx_find_function(const ptx_parser *p, ptx_token t);
uint64_t ptx_place_shared(ptx_parser *p, ptx_variable *v);
void ptx_statement(ptx_parser *p);

#endif
