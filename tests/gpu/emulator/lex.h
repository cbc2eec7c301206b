/* tests/gpu/emulator/lex.h -- PTX as tokens. */
#ifndef WEFT_EMU_LEX_H
#define WEFT_EMU_LEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum ptx_token_kind {
  PTX_T_END,
  PTX_T_WORD,     /* a name, an instruction with its modifiers, or a directive: letters, digits and . _ $ % and :: */
  PTX_T_NUMBER,   /* value: an integer, or the bits of a float (0f..., 0d...) */
  PTX_T_STRING,
  PTX_T_MARK,     /* one character */
} ptx_token_kind;

typedef struct ptx_token {
  ptx_token_kind kind;
  const char *text;   /* borrowed from the source */
  size_t size;
  uint64_t value;
  int line;
} ptx_token;

typedef struct ptx_lexer {
  const char *at, *end;
  int line;
} ptx_lexer;

/* Reads the next token.  A character that begins no other token is a mark. */
ptx_token ptx_lex(ptx_lexer *l);

#endif
